/* Swift's hash tables call ceil when they round their size up, and use nothing else of libm. Because the library has
 * its own hidden ceil, libm is not loaded. */
#include <stdint.h>

__attribute__((visibility("hidden"))) double ceil(double value) {
  /* Each value from 2^52 on is a whole number already. NaN is returned unchanged too. */
  if (!(value > -0x1p52 && value < 0x1p52)) return value;
  double whole = (double)(int64_t)value;
  return whole < value ? whole + 1 : whole;
}
