/* The version, in one place: the library, the .pc file and every package read it from here. */
#ifndef PENSTOCK_VERSION_H
#define PENSTOCK_VERSION_H

/* Scripts read this. */
/* clang-format off */
#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 1
#define PENSTOCK_VERSION_PATCH 0
#define PENSTOCK_VERSION "0.1.0"
/* Major, minor and patch as one number that can be compared: 0xMMmmpp. */
#define PENSTOCK_VERSION_NUMBER 0x000100

#endif
