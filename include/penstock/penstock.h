/* Penstock: an embeddable gRPC client. Include this; it brings in one header per object.
 *
 * The ABI is not frozen yet: 0.2.0 freezes it (docs/abi.md). Until then each change that a program has to follow is a row of
 * docs/upgrading.md. */
#ifndef PENSTOCK_PENSTOCK_H
#define PENSTOCK_PENSTOCK_H

#include "version.h"

#include "base.h"
#include "message.h"
#include "metadata.h"
#include "status.h"
#include "executor.h"
#include "interceptor.h"
#include "request.h"
#include "hop.h"
#include "async.h"
#include "sync.h"
#include "runtime.h"
#include "call.h"
#include "cancel.h"
#include "channel.h"
#include "registration.h"
#include "ready.h"
#include "credentials.h"
#include "telemetry.h"
#include "codec.h"
#include "fork.h"
#include "resolver.h"
#include "connector.h"
#include "verifier.h"
#include "compressor.h"
#include "picker.h"

#endif
