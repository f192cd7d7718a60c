#include "kernels/backend.h"

#include "common/check.h"

namespace baton::kernels {

void Activation::set_rows(uint32_t rows) {
  BATON_CHECK(rows >= 1 && rows <= max_rows_);
  rows_ = rows;
}

}  // namespace baton::kernels
