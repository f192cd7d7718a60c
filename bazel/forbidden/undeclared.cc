// Planted: no dependency offers this header, so the sandbox does not hold it.
#include "common/hash.h"

baton::Digest Empty() { return baton::HashBytes(""); }
