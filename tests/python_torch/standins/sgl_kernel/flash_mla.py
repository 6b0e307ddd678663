"""Stand-in: fails at the first call, since the extension is not there."""

try:
    from sgl_kernel import flashmla_ops  # noqa: F401
except ImportError as error:
    _import_error = error


def _fail(*_, **__):
    raise ImportError("sgl_kernel.flashmla_ops") from _import_error


def get_mla_metadata(*arguments, **keywords):
    _fail()


def flash_mla_with_kvcache(*arguments, **keywords):
    _fail()


def flash_mla_sparse_fwd(*arguments, **keywords):
    _fail()
