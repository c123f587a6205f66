import PenstockWire

// The choice of an attempt's endpoint. A request may ask for an endpoint that has a certain attribute. Hops
// with on_pick see each picked endpoint before anything is sent, and may refuse it.

/// A request's wish for an endpoint: the endpoint's attribute `name` shall have the value `value`. The object
/// is immutable.
public final class EndpointWish {
  public let name: ByteBuffer
  /// The value, followed by a NUL.
  public let value: ByteBuffer
  /// Whether the call takes only an endpoint with this attribute. If false, the call takes any other endpoint
  /// when none of those with the attribute is ready.
  public let isRequired: Bool

  /// Makes a wish. Returns nil if there is no memory.
  public init?(_ name: ByteView, _ value: ByteView, isRequired: Bool) {
    guard let name = ByteBuffer(copying: name), let value = Request.terminated(value) else { return nil }
    self.name = name
    self.value = value
    self.isRequired = isRequired
  }
}

extension Request {
  public var wish: EndpointWish? { labels?.wish }

  public func setWish(_ wish: EndpointWish?) {
    labels = RequestLabels(
      authority: labels?.authority, contentType: labels?.contentType, userAgent: labels?.userAgent, wish: wish
    )
  }
}

extension Hop {
  /// In on_pick: the address of the picked endpoint if `name` is nil, otherwise the value of the endpoint's
  /// attribute of this name. The bytes end with a NUL.
  public func picked(_ name: ByteView? = nil) -> ByteBuffer? {
    currentEvent == .pick ? call.below?.offered(name) : nil
  }
}

extension Call {
  /// Whether any hop has on_pick, so that `accepts` has to show it each picked endpoint.
  private var hasPickHops: Bool { table?.pointee.hasPick ?? false }

  /// Starts the attempt. With on_pick or a `wish` its endpoint is chosen for this call.
  func startBelow() {
    let isChoosy = hasPickHops || request.wish != nil
    tellBelow { if isChoosy { $0.startChoosing(self) } else { $0.start(self) } }
  }

  /// Shows the picked endpoint (`CallBelow.offered`) to the hops with on_pick, from the top, until a hop
  /// refuses it. Returns false if a hop has refused it, or the call has ended. This is a step of its own, on
  /// the driving thread.
  public func accepts() -> Bool {
    guard hasPickHops else { return true }
    guard !isRunning, phase == .live, leg == .open else { return false }
    isRunning = true
    let isTaken = showPick()
    endAskedStep()
    return isTaken && phase == .live
  }

  private func showPick() -> Bool {
    for hop in hops[cutAt...] where hop.isActive {
      guard let callback = hop.callbacks.pointee.onPick else { continue }
      let answer = hop.invoke(callback, .pick)
      if finishIfAsked(hop) { return false }
      switch Verdict(rawValue: answer) {
      case .next: break
      case .drop: return false
      case nil, .pause, .hold, .take, .restart, .skip:
        fail(hop, "returned a value from on_pick that is neither NEXT nor DROP")
        return false
      }
    }
    return true
  }
}
