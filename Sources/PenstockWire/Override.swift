/// Stands for the body of a method that each subclass overrides, unless it never lets the method be called. Swift has no
/// abstract methods. Test builds (PENSTOCK_CHECKS) stop at a method that is not overridden; otherwise `otherwise` is the
/// result, which ends a call rather than the program.
///
/// A method of a base class that does nothing, or returns a constant, is either such a method, or its comment says what
/// happens "by default" (scripts/defaults.py looks).
public func mustOverride<Result>(_ otherwise: Result, _ method: StaticString = #function) -> Result {
  #if PENSTOCK_CHECKS
    fatalError("\(method) is not overridden")
  #else
    return otherwise
  #endif
}
