import CMemory

/// Runs `body` with an object that something else keeps until it returns, which the caller has to make sure of: so that no
/// reference to it is counted. An atomic pair costs as much time as 40 instructions, and a call had 86 of them.
///
/// The argument is an autoclosure, because an object that is passed as a value is kept until the function returns: a count.
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

/// Retains an object that no other thread has yet, and that is not confined: no atomic operation is needed.
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
