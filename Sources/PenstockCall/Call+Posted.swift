import CPenstockMemory
import PenstockWire
import Synchronization

// Inputs from other threads are put on a stack without a lock. The driving thread takes the whole stack and reverses
// its order. A thread that finds the stack empty posts the call to its loop.

extension Call {
  /// An input that a thread has posted, as a node of a linked list, the newest first.
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
    // Without this memory the input would be lost.
    cm_insist(MemoryLayout<Posted>.size).initializeMemory(as: Posted.self, to: Posted(input: input))
  }

  /// A mark on the stack `posted`, not a pointer. It says that the loop will run the call's inputs in any
  /// case, for example when it opens the call. A thread that posts an input above the mark need not post the
  /// call to the loop.
  private static var opening: UnsafeMutablePointer<Posted> {
    UnsafeMutablePointer(bitPattern: 16).unsafelyUnwrapped
  }

  /// Notes that `open` will run soon, so that a thread that posts an input need not post the call to the loop
  /// too. Called while no other thread knows the call.
  public func awaitOpen() { posted.store(Call.opening, ordering: .releasing) }

  /// Takes the posted message and half-close of a call with one request message, if nothing else was posted
  /// and the call has neither codec nor trace. nil: the inputs are carried out one by one instead.
  func takeWhole() -> Message? {
    guard hasOnlyHops, request.kind.sendsOne, let last = posted.load(ordering: .acquiring),
      last != Call.opening,
      case .halfClose = last.pointee.input, let first = last.pointee.next, first != Call.opening,
      first.pointee.next == Call.opening, case .send(let message) = first.pointee.input,
      // The exchange fails if another thread has posted an input meanwhile.
      posted.compareExchange(
        expected: last, desired: Call.opening, ordering: .acquiringAndReleasing
      ).exchanged
    else { return nil }
    _ = Call.take(last)
    _ = Call.take(first)
    return message
  }

  /// Posts an input, on any thread. The driving thread carries the inputs out soon, in order.
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

  /// Frees the posted inputs without carrying them out. Called instead of `runPosted` when the call has ended
  /// and no thread drives its loop any more. Any thread.
  public func dropPosted() {
    var next = posted.exchange(nil, ordering: .acquiringAndReleasing)
    while let node = next, node != Call.opening {
      next = node.pointee.next
      _ = Call.take(node)
    }
  }

  /// Carries out the posted inputs, the oldest first. Called by the loop, on the driving thread, after
  /// `CallLoop.post`.
  public func runPosted() { carryOut(posted.exchange(nil, ordering: .acquiringAndReleasing)) }

  /// Carries out the posted inputs before the loop takes the call from its inbox, on the driving thread. The
  /// mark `opening` replaces the inputs on the stack, because the call is still in the inbox: no thread may
  /// post it once more.
  public func runPostedEarly() {
    if posted.load(ordering: .relaxed) == nil { return }
    carryOut(posted.exchange(Call.opening, ordering: .acquiringAndReleasing))
  }

  @inline(__always)
  private func carryOut(_ all: UnsafeMutablePointer<Posted>?) {
    var newest = all
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
    // The object with the call's hops is given back only after the inputs, because each of them may refer to
    // a hop.
    if phase == .ended, !isRunning { giveRow() }
  }
}
