import CPenstock
import PenstockJSON
import PenstockTransport
import PenstockLoop
import PenstockClient

// The functions of fork.h.

@_cdecl("penstock_fork_prepare") @implementation
public func penstock_fork_prepare() { Fork.prepare() }

@_cdecl("penstock_fork_parent") @implementation
public func penstock_fork_parent() { Fork.parent() }

@_cdecl("penstock_fork_child") @implementation
public func penstock_fork_child() { Fork.child(forgetting: Worker.forgetAll) }
