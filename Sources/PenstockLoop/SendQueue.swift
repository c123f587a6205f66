import CPenstockSystem
import PenstockWire

/// The bytes to be sent on a connection, in order. Some are copies that the queue owns (its own bytes). The
/// others are parts of messages, which are not copied: they stay in their messages until the kernel has
/// accepted them.
///
/// A part holds a reference to its message, even if the stream is reset or the call ends. No code changes the
/// message after it was added. With `copies` all bytes are the queue's own, because a TLS engine needs them
/// in one piece of memory.
public final class SendQueue {
  private struct Part {
    let message: ByteBuffer
    var start: Int
    var count: Int
    /// The number of the queue's own bytes before this part, counted since the queue was last empty.
    let offset: Int

    var view: ByteView { ByteView(rebasing: message.view[start..<(start + count)]) }
  }

  /// The queue's own bytes; with `copies` all bytes.
  public let bytes = ByteBuffer()
  private let copies: Bool
  private var parts: [Part] = []
  private var partBytes = 0
  /// The number of the queue's own bytes that were sent since the queue was last empty.
  private var base = 0

  /// The length in bytes of the shortest part that is not copied. To copy a shorter part costs less than one
  /// more vector in the system call.
  private static let leastPart = 2048
  /// The most vectors in one system call. They take 1 KiB of the stack.
  private static let mostVectors = 64

  public init(copies: Bool) { self.copies = copies }

  public var count: Int { bytes.count &+ partBytes }
  public var isEmpty: Bool { count == 0 }
  /// Whether the queue has reached `limit` bytes. Parts that are not copied count half, because a message of
  /// 1 MiB is sent 10 % faster in two system calls than in four.
  public func isFull(_ limit: Int) -> Bool { bytes.count >= limit || count >= 2 * limit }

  /// Adds a copy of `view`. False: no memory.
  public func append(_ view: ByteView) -> Bool { bytes.append(view) }

  /// Adds the `count` bytes of `message` that begin at the offset `start`. False: no memory.
  public func append(_ message: ByteBuffer, from start: Int, count: Int) -> Bool {
    var shared = count
    if copies || count < SendQueue.leastPart {
      guard bytes.append(ByteView(rebasing: message.view[start..<(start + count)])) else { return false }
      // A lent message (whose memory belongs to the user) is held until the copy was sent, because its
      // finalizer must not run from within nghttp2.
      if !message.isLent { return true }
      shared = 0
    }
    parts.append(Part(message: message, start: start, count: shared, offset: base &+ bytes.count))
    partBytes &+= shared
    return true
  }

  public func removeAll() {
    bytes.removeAll(keepingCapacity: true)
    parts.clear()
    partBytes = 0
    base = 0
  }

  /// Sends as many bytes as the kernel accepts now. Returns their number, or -errno.
  public func send(to descriptor: Int32) -> Int {
    var sent = 0
    while true {
      let (n, offered) =
        partBytes == 0
        ? (cs_send(descriptor, bytes.view.baseAddress, bytes.count), bytes.count) : sendVectors(descriptor)
      // If some bytes were sent before an error, this call returns their number, and the next call returns
      // the error.
      if n <= 0 { return sent > 0 ? sent : Int(n) }
      consume(Int(n))
      sent &+= Int(n)
      if n < offered || isEmpty { return sent }
    }
  }

  /// Sends as many vectors as one system call takes. `taken`: the number of bytes that the kernel has
  /// accepted, or -errno. `offered`: the number of bytes in the vectors.
  private func sendVectors(_ descriptor: Int32) -> (taken: Int64, offered: Int) {
    withUnsafeTemporaryAllocation(of: iovec.self, capacity: SendQueue.mostVectors) { vectors in
      let own = bytes.view
      var filled = 0
      var offered = 0
      var sentOwn = 0
      var index = 0
      func add(_ view: ByteView) {
        vectors[filled] = iovec(
          iov_base: UnsafeMutableRawPointer(mutating: view.baseAddress), iov_len: view.count)
        filled += 1
        offered += view.count
      }
      while filled < vectors.count - 2, index < parts.count {
        let part = parts[index]
        index += 1
        if part.offset &- base > sentOwn {
          add(ByteView(rebasing: own[sentOwn..<(part.offset &- base)]))
          sentOwn = part.offset &- base
        }
        add(ByteView(rebasing: part.message.view[part.start..<(part.start + part.count)]))
      }
      if index == parts.count, sentOwn < own.count { add(ByteView(rebasing: own[sentOwn...])) }
      return (cs_sendv(descriptor, vectors.baseAddress, filled), offered)
    }
  }

  /// Moves up to `most` bytes to `out`, in order. Returns their number; nil: no memory.
  public func move(_ most: Int, into out: ByteBuffer) -> Int? {
    var moved = 0
    while moved < most, !isEmpty {
      let part = parts.first { $0.count > 0 }
      let own = part.map { $0.offset &- base } ?? bytes.count
      let next = own > 0 ? ByteView(rebasing: bytes.view[..<own]) : part.map { $0.view } ?? bytes.view
      let few = ByteView(rebasing: next.prefix(most - moved))
      guard out.append(few) else { return moved > 0 ? moved : nil }
      moved += few.count
      consume(few.count)
    }
    return moved
  }

  public func consume(_ count: Int) {
    if count == self.count { return removeAll() }
    var left = count
    var through = 0
    while left > 0 {
      let own = min(through < parts.count ? parts[through].offset &- base : bytes.count, left)
      bytes.consume(own)
      base &+= own
      left &-= own
      if left == 0 { break }
      let taken = min(parts[through].count, left)
      parts[through].start &+= taken
      parts[through].count &-= taken
      partBytes &-= taken
      left &-= taken
      if parts[through].count == 0 { through &+= 1 }
    }
    parts.removeLeading(through)
  }
}
