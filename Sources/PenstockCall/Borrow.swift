import CPenstockMemory

/// Runs `body` with an object without counting a reference to it. The caller makes sure that something else keeps the
/// object until `body` returns. An atomic retain and release take as long as 40 instructions, and without `borrow` a
/// call has 86 such pairs.
///
/// The argument is an autoclosure, because Swift counts a reference to an object that is passed as a value.
@inline(__always)
public func borrow<T: AnyObject, R>(_ object: @autoclosure () -> T, _ body: (T) -> R) -> R {
  Unmanaged.passUnretained(object())._withUnsafeGuaranteedRef(body)
}

/// `borrow` for an object that may be nil.
@inline(__always)
public func borrow<T: AnyObject, R>(_ object: @autoclosure () -> T?, _ body: (T) -> R) -> R? {
  unsafeBitCast(object(), to: UnsafeMutableRawPointer?.self).map {
    Unmanaged<T>.fromOpaque($0)._withUnsafeGuaranteedRef(body)
  }
}

/// Retains an object that no other thread refers to yet. In Embedded mode this takes no atomic operation. Not for
/// confined objects (CPenstockEmbedded/references.c).
@inline(__always)
public func retainNew<T: AnyObject>(_ object: T) -> Unmanaged<T> {
  let reference = Unmanaged.passUnretained(object)
  #if hasFeature(Embedded)
    cm_retain_new(reference.toOpaque())
    return reference
  #else
    return reference.retain()
  #endif
}
