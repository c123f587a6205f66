/* What the Embedded Swift runtime takes from libc and what older glibc versions lack. Swift does not import it. */
#ifndef PENSTOCK_CEMBEDDED_H
#define PENSTOCK_CEMBEDDED_H
#endif
