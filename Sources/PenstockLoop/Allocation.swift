import CPenstockMemory

// This is the first file of the module. In Embedded mode the compiler puts its own weak versions of the Swift
// runtime's functions into the first file, and inlines them there. A class in this file would use those
// versions, and not the ones of Sources/CPenstockEmbedded/references.c.

/// Marks an object as confined to the driving thread. Called in the object's initialiser. Only that thread
/// retains and releases the object, so counting its references takes no atomic operations in Embedded mode
/// (Sources/CPenstockEmbedded/references.c). Exception: another thread may release the last reference.
@inline(__always)
public func confine(_ object: AnyObject) { cm_confine(Unmanaged.passUnretained(object).toOpaque()) }
