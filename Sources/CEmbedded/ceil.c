/* Swift's hash tables round their size up, and use nothing else of libm. With this function, hidden in the library,
 * libm is not loaded. */
#include <stdint.h>

__attribute__((visibility("hidden"))) double ceil(double value) {
  /* From 2^52 on all values are whole numbers; NaN passes through. */
  if (!(value > -0x1p52 && value < 0x1p52)) return value;
  double whole = (double)(int64_t)value;
  return whole < value ? whole + 1 : whole;
}
