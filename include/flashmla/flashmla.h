// The C interface of flashmla: multi-head latent attention over paged caches. C99, and C++ as well. docs/c_api.md shows
// how to use it; what each operation means is said once, in the C++ header of the same name.
//
// - Every call returns a flashmla_status; flashmla_last_error() has the words. Nothing exits, prints or throws. Every
//   argument is checked before the first write or launch.
// - Every struct begins with struct_size, the size that the caller was compiled with: FLASHMLA_INIT(&x) sets it and
//   clears the rest. A zero field means its default, a null tensor one that is not given.
// - All memory is the caller's but plans, which flashmla_plan_destroy frees. Calls from several threads are safe, also
//   with one plan; concurrent runs need separate workspaces.
#ifndef FLASHMLA_FLASHMLA_H
#define FLASHMLA_FLASHMLA_H

#include "flashmla/c/absorb.h"
#include "flashmla/c/decode.h"
#include "flashmla/c/info.h"
#include "flashmla/c/kv_cache.h"
#include "flashmla/c/merge.h"
#include "flashmla/c/plan.h"
#include "flashmla/c/prefill.h"
#include "flashmla/c/types.h"
#include "flashmla/version.h"

#endif
