"""Stand-in: needs the compiled extension, which is not there."""

import vllm._flashmla_C  # noqa: F401
