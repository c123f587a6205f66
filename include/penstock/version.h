/* The version, in one place: the library, the .pc file and every package read it from here. */
#ifndef PENSTOCK_VERSION_H
#define PENSTOCK_VERSION_H

/* Scripts read these lines. "-dev" marks a version that has not been released yet; the numbers are already those of the
 * coming release. */
/* clang-format off */
#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 2
#define PENSTOCK_VERSION_PATCH 0
#define PENSTOCK_VERSION "0.2.0-dev"
/* Major, minor and patch as one number that can be compared: 0xMMmmpp. */
#define PENSTOCK_VERSION_NUMBER 0x000200

#endif
