// Planted: the target depends on what is visible to the router alone.
#include "router/core_options.h"
