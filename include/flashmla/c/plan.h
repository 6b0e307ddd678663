// Plans (plan.hpp): made once for shapes and a device, immutable.
#ifndef FLASHMLA_C_PLAN_H
#define FLASHMLA_C_PLAN_H

#include "flashmla/c/info.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flashmla_plan flashmla_plan;

typedef struct flashmla_plan_options {
    uint32_t struct_size;
    int32_t batch_invariant;  // 1: a request's bits depend on that request alone
    const char* kernel;       // forces a kernel of the catalogue; null: the planner chooses
    int32_t num_workers;      // 0 = all the device has
    int32_t reserved;
} flashmla_plan_options;

typedef struct flashmla_plan_info {
    uint32_t struct_size;
    flashmla_operation operation;
    int32_t num_workers;
    int32_t reserved;
    size_t workspace_bytes;
    const char* kernel;  // both strings live as long as the plan
    const char* reason;
} flashmla_plan_info;

FLASHMLA_API flashmla_status flashmla_query_plan(const flashmla_plan* plan, flashmla_plan_info* info);

// Exactly what a run of the plan needs, aligned to FLASHMLA_WORKSPACE_ALIGNMENT, on the plan's device; 0 is possible.
FLASHMLA_API flashmla_status flashmla_plan_workspace_bytes(const flashmla_plan* plan, size_t* bytes);
enum { FLASHMLA_WORKSPACE_ALIGNMENT = 256 };

FLASHMLA_API void flashmla_plan_destroy(flashmla_plan* plan);  // null is allowed

#ifdef __cplusplus
}
#endif

#endif
