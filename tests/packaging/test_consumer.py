"""An installed tree serves somebody else's CMake project through find_package(flashmla), and a C compiler by pkg-config."""

import os
import re
import subprocess


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def version(root):
    return re.search(r'VERSION_STRING "([^"]+)"', (root / "include/flashmla/version.h").read_text()).group(1)


def build_consumer(root, prefix, folder):
    run("cmake", "-G", "Ninja", "-S", root / "tests/packaging/consumer", "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder)
    return run(folder / "consumer"), run(folder / "consumer_c")


def answer(root):
    return f"flashmla {version(root)} out 3f80 lse 24.000\n"


def test_consumers_of_the_installed_libraries(root, build_dir, tmp_path):
    run("cmake", "--install", build_dir, "--component", "development", "--prefix", tmp_path / "prefix")
    assert build_consumer(root, tmp_path / "prefix", tmp_path / "consumer") == (answer(root), answer(root))


def test_c_consumer_by_pkg_config(root, build_dir, tmp_path):
    run("cmake", "--install", build_dir, "--component", "development", "--prefix", tmp_path / "prefix")
    found = next((tmp_path / "prefix").rglob("pkgconfig"))
    environment = {**os.environ, "PKG_CONFIG_PATH": str(found), "LD_LIBRARY_PATH": str(found.parent)}
    assert run("pkg-config", "--modversion", "flashmla", env=environment).strip() == version(root)
    flags = run("pkg-config", "--cflags", "--libs", "flashmla", env=environment).split()
    program = tmp_path / "consumer"
    run("cc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", root / "tests/packaging/consumer/main.c", *flags, "-o",
        program)
    assert run(program, env=environment) == answer(root)


def test_installed_tree_is_relocatable_and_names_no_source_folder(root, build_dir, tmp_path):
    run("cmake", "--install", build_dir, "--component", "development", "--prefix", tmp_path / "first")
    (tmp_path / "first").rename(tmp_path / "second")
    for file in (tmp_path / "second").rglob("*.cmake"):
        text = file.read_text()
        assert str(root) not in text and str(tmp_path) not in text, file
    build_consumer(root, tmp_path / "second", tmp_path / "consumer")


def test_installed_headers_are_the_public_ones(root, build_dir, tmp_path):
    run("cmake", "--install", build_dir, "--component", "development", "--prefix", tmp_path)
    installed = {p.relative_to(tmp_path / "include") for p in (tmp_path / "include").rglob("*.h*")}
    assert installed == {p.relative_to(root / "include") for p in (root / "include").rglob("*.h*")}
