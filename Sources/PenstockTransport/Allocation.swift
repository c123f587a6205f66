import CMemory

// The first file of the module: in Embedded mode the compiler puts its own weak versions of the runtime's functions with
// it, and inlines them there, so that a class here would not be freed by Sources/CEmbedded/references.c.

/// For the initialiser of an object to which only the driving thread makes and drops references: counting them then takes
/// no atomic operations in Embedded mode (Sources/CEmbedded/references.c). The last reference may go on another thread if
/// it is the only one.
@inline(__always)
func confine(_ object: AnyObject) { cm_confine(Unmanaged.passUnretained(object).toOpaque()) }
