import CMemory

// This is the first file of the module. In Embedded mode the compiler adds its own weak versions of the runtime's
// functions to the first file, and inlines them there: a class in this file would not be freed by
// Sources/CEmbedded/references.c.

/// Marks an object as confined to the driving thread, in its initialiser: only that thread makes and drops references
/// to it, so counting them takes no atomic operations in Embedded mode (Sources/CEmbedded/references.c). If only one
/// reference is left, another thread may release it.
@inline(__always)
func confine(_ object: AnyObject) { cm_confine(Unmanaged.passUnretained(object).toOpaque()) }
