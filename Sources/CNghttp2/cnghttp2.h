/* nghttp2 as the transport needs it. */
#ifndef PENSTOCK_CNGHTTP2_H
#define PENSTOCK_CNGHTTP2_H
#include <nghttp2/nghttp2.h>
#endif
