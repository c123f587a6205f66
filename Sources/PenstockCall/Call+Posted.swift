import CMemory
import PenstockWire
import Synchronization

// Inputs from other threads: a stack without a lock, which the driving thread takes whole and turns round. A thread that
// finds it empty posts the call to its loop.

extension Call {
  /// A posted input, in a list with the newest first.
  struct Posted {
    let input: Input
    var next: UnsafeMutablePointer<Posted>?
  }

  private static func take(_ pointer: UnsafeMutablePointer<Posted>) -> Input {
    let posted = pointer.move()
    cm_free(pointer)
    return posted.input
  }

  private static func make(_ input: consuming Input) -> UnsafeMutablePointer<Posted> {
    guard let memory = cm_alloc(MemoryLayout<Posted>.size) else { preconditionFailure("no memory") }
    return memory.initializeMemory(as: Posted.self, to: Posted(input: input))
  }

  /// Stands for `open`, which is to run first: a thread that asks for something meanwhile need not post the call.
  private static var opening: UnsafeMutablePointer<Posted> {
    UnsafeMutablePointer(bitPattern: 16).unsafelyUnwrapped
  }

  /// Called before anyone else has the call: `open` is about to be run.
  public func awaitOpen() { posted.store(Call.opening, ordering: .releasing) }

  /// The one message of a plain call and its half-close, if they are all that has been asked for.
  func takeWhole() -> Message? {
    guard isPlain, request.kind.sendsOne, let last = posted.load(ordering: .acquiring), last != Call.opening,
      case .halfClose = last.pointee.input, let first = last.pointee.next, first != Call.opening,
      first.pointee.next == Call.opening, case .send(let message) = first.pointee.input,
      // Unless more has come meanwhile.
      posted.compareExchange(
        expected: last, desired: Call.opening, ordering: .acquiringAndReleasing
      ).exchanged
    else { return nil }
    _ = Call.take(last)
    _ = Call.take(first)
    return message
  }

  /// Any thread. Done in order, on the driving thread, soon.
  public func submit(_ input: consuming Input) {
    let node = Call.make(input)
    var head = posted.load(ordering: .relaxed)
    while true {
      node.pointee.next = head
      let (done, seen) = posted.weakCompareExchange(
        expected: head, desired: node, ordering: .acquiringAndReleasing)
      if done { break }
      head = seen
    }
    if head == nil { withLoop { $0.post(self) } }
  }

  /// Instead of `runPosted` where nothing drives the call any more: it has ended. Any thread.
  public func dropPosted() {
    var next = posted.exchange(nil, ordering: .acquiringAndReleasing)
    while let node = next, node != Call.opening {
      next = node.pointee.next
      _ = Call.take(node)
    }
  }

  /// The loop's answer to `CallLoop.post`.
  public func runPosted() {
    var newest = posted.exchange(nil, ordering: .acquiringAndReleasing)
    var oldest: UnsafeMutablePointer<Posted>?
    while let node = newest, node != Call.opening {
      newest = node.pointee.next
      node.pointee.next = oldest
      oldest = node
    }
    while let pointer = oldest {
      oldest = pointer.pointee.next
      step(Call.take(pointer))
    }
    // Not before the inputs are done: each of them may refer to a hop.
    if phase == .ended, !isRunning { giveRow() }
  }
}
