import CMemory

// The first file of the module: in Embedded mode the compiler puts its own weak versions of the runtime's functions with
// it, and inlines them there, so that a class here would not be freed by Sources/CEmbedded/references.c.

/// Marks an object as confined to the driving thread, in its initialiser: only that thread makes and drops references
/// to it, so counting them takes no atomic operations in Embedded mode (Sources/CEmbedded/references.c). If only one
/// reference is left, another thread may release it.
@inline(__always)
func confine(_ object: AnyObject) { cm_confine(Unmanaged.passUnretained(object).toOpaque()) }
