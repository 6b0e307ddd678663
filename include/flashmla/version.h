/* Version and build facts. C and C++. */
#ifndef FLASHMLA_VERSION_H
#define FLASHMLA_VERSION_H

#define FLASHMLA_VERSION_MAJOR 0
#define FLASHMLA_VERSION_MINOR 1
#define FLASHMLA_VERSION_PATCH 0
#define FLASHMLA_VERSION_STRING "0.1.0"

#endif
