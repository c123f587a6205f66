import CMemory

/// In the initialiser of what only the driving thread makes and drops references to: counting them then takes no atomic
/// operations in Embedded mode (Sources/CEmbedded/references.c). The last reference may go on another thread if it is
/// the only one.
@inline(__always)
func confine(_ object: AnyObject) { cm_confine(Unmanaged.passUnretained(object).toOpaque()) }
