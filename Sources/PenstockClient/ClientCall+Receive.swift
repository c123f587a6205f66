import CPenstockMemory
import PenstockCall
import PenstockLoop
import PenstockWire

/// Messages that a thread takes from a call at once: at most `most`, of at most `room` bytes together.
final class MessageBatch {
  private let most: Int
  private var room: Int
  private(set) var messages: [Message] = []

  init(most: Int, room: Int) {
    self.most = most
    self.room = room
  }

  /// Adds the next message, which the caller takes from the call if the outcome is `.ok`. `.end`: the batch has
  /// all the messages that it may have.
  fileprivate func add(_ message: Message) -> Outcome {
    guard messages.count < most else { return .end }
    if message.isObject { return messages.isEmpty ? .state : .end }
    guard message.count <= room else { return messages.isEmpty ? .tooLarge : .end }
    room -= message.count
    messages.append(message)
    return .ok
  }
}

/// How a thread takes messages of the response.
extension ClientCall {
  /// Blocking style: waits for the next message. In callback style, takes a message that has come. `.end`: there
  /// will be no further message.
  public func receive() -> (Outcome, Message?) {
    var found: AnyObject?
    let outcome = receive(&found)
    return (outcome, found.map { unsafeDowncast($0, to: Message.self) })
  }

  /// As `receive`, but takes further messages that have come, up to `most` of them and up to `size` bytes. Copies
  /// their bytes to `data`, and gives their lengths. Returns their number.
  public func receiveMany(
    _ most: Int, into data: UnsafeMutableRawPointer?, _ size: Int, lengths: UnsafeMutablePointer<Int>
  ) -> (Outcome, Int) {
    let batch = MessageBatch(most: most, room: size)
    var found: AnyObject? = batch
    let outcome = receive(&found)
    guard outcome == .ok else { return (outcome, 0) }
    // The messages are copied and released outside of the lock: a release may run a user's finalizer.
    var used = 0
    var number = 0
    for message in batch.messages {
      let view = message.view
      if let data, let start = view.baseAddress { memcpy(data + used, start, view.count) }
      used += view.count
      lengths[number] = view.count
      number += 1
    }
    return (.ok, number)
  }

  private func receive(_ found: inout AnyObject?) -> Outcome {
    if isCallbackStyle {
      guard queuesMessages else { return .state }
      return lock.withLock { take(&found) ?? (reply != nil || isDiscarding ? .end : .wouldBlock) }
    }
    closeWhenSaid()
    return wait(for: .message, &found)
  }

  /// Takes the message that has come, or as many as the batch `found` may have. nil: none has come. The caller
  /// holds the lock.
  func take(_ found: inout AnyObject?) -> Outcome? {
    guard let batch = found.map({ unsafeDowncast($0, to: MessageBatch.self) }) else {
      found = takeMessage()
      return found == nil ? nil : .ok
    }
    while let next = nextMessage {
      let outcome = batch.add(next)
      guard outcome == .ok else { return outcome == .end ? .ok : outcome }
      _ = takeMessage()
    }
    return batch.messages.isEmpty ? nil : .ok
  }

  /// The message that `takeMessage` would return. The caller holds the lock.
  private var nextMessage: Message? {
    guard kind.receivesOne else { return received.first }
    return hasAnswered ? nil : answer ?? reply?.message
  }

  private func takeMessage() -> Message? {
    guard kind.receivesOne else { return received.popFirst() }
    // The message is not removed from `answer`, because the reply gets it, too.
    let message = nextMessage
    hasAnswered = message != nil || hasAnswered
    return message
  }
}
