"""An installed tree serves somebody else's CMake project through find_package(flashmla)."""

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
    return run(folder / "consumer")


def test_consumer_of_the_installed_static_library(root, build_dir, tmp_path):
    run("cmake", "--install", build_dir, "--component", "development", "--prefix", tmp_path / "prefix")
    said = build_consumer(root, tmp_path / "prefix", tmp_path / "consumer")
    assert said == f"flashmla {version(root)} out 3f80 lse 24.000\n"


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
