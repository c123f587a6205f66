import CPenstockSystem
import PenstockNames
public import PenstockWire
import Synchronization

/// The outcome of a lookup.
public enum LookupOutcome {
  /// At least one address, in the order in which they should be tried.
  case addresses([SocketAddress])
  /// The addresses of the servers that SRV records name, at least one, in the order in which they should be tried.
  case servers([Server])
  /// No addresses were found; the text is the reason.
  case failed([UInt8])

  public struct Server {
    public let address: SocketAddress
    public let weight: UInt32
    public let priority: UInt16
  }
}

/// The receiver of a lookup's outcome. `lookedUp` is called once, on the driving thread.
public protocol LookupCompletion: AnyObject {
  func lookedUp(_ outcome: LookupOutcome)
}

private func words(_ text: StaticString) -> [UInt8] {
  [UInt8](UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
}

private func words(_ text: UnsafePointer<CChar>?) -> [UInt8] {
  guard let text else { return [] }
  return [UInt8](UnsafeRawBufferPointer(start: text, count: strlen(text)))
}

/// A lookup of a name. It uses getaddrinfo, or queries the SRV records of the name and then looks up the
/// hosts that the records name. It may block for any time, so it runs on a thread of its own, which is
/// detached and gets no signals. A runtime has at most four such threads; further lookups wait in a queue. An
/// IP literal needs no thread. When the outcome is known, the lookup is posted to the runtime's inbox.
///
/// A shutdown of the runtime waits for all lookups under way, because their threads still run. This includes
/// cancelled lookups.
public final class Lookup: InboxItem {
  private let runtime: Runtime
  private let port: UInt16
  /// The labels before the host in the name of the SRV records, such as `_grpc._tcp`. Empty: the name is the
  /// host alone. nil: the lookup is of the host's addresses, not of SRV records.
  private let services: ByteBuffer?
  /// The receiver of the outcome. Only the driving thread uses it. nil: the receiver was called, or the
  /// lookup was cancelled.
  fileprivate var completion: (any LookupCompletion)?
  /// The name to look up. While the lookup's thread runs, only that thread uses it.
  fileprivate var name: UnsafeMutablePointer<CChar>?
  private var outcome: LookupOutcome?
  /// Whether the lookup is in the number of running lookups: its thread was started, and the outcome has not
  /// reached `completion` yet. Only the driving thread uses it.
  fileprivate var isCounted = false
  /// Whether the lookup was cancelled. Its thread checks this before each host, and then looks up no further
  /// hosts.
  private let isCancelled = Atomic<Bool>(false)

  fileprivate init(
    _ runtime: Runtime, _ port: UInt16, _ services: ByteBuffer?, _ completion: any LookupCompletion
  ) {
    self.runtime = runtime
    self.port = port
    self.services = services
    self.completion = completion
  }

  deinit { free(name) }

  /// The most bytes of a host. A name has at most 255 bytes, and an IPv6 address may be followed by a scope
  /// (`%eth0`).
  private static let longestName = 320

  /// Starts a lookup. Called on the driving thread. The completion is not called from within this function.
  /// The caller may keep the returned lookup in order to `cancel` it.
  @discardableResult
  public static func start(
    host: ByteView, port: UInt16, services: ByteBuffer?, on runtime: Runtime,
    completion: any LookupCompletion
  ) -> Lookup {
    let lookup = Lookup(runtime, port, services, completion)
    if let address = SocketAddress(literal: host, port: port) {
      lookup.finish(.addresses([address]))
    } else if host.isEmpty {
      lookup.finish(.failed(words("the host name is empty")))
    } else if let name = withTerminated(host, limit: longestName, { strdup($0) }) {
      if let name {
        runtime.lookups.start(lookup, name)
      } else {
        lookup.finish(.failed(words("out of memory")))
      }
    } else {
      lookup.finish(.failed(words("the host name is too long or has a NUL in it")))
    }
    return lookup
  }

  /// Cancels the lookup: releases the completion without calling it. Called on the driving thread.
  public func cancel() {
    let dropped = completion
    completion = nil
    isCancelled.store(true, ordering: .relaxed)
    runtime.lookups.forget(self)
    _ = dropped
  }

  fileprivate func finish(_ outcome: LookupOutcome) {
    self.outcome = outcome
    runtime.post(self)
  }

  public override func run() {
    if isCounted {
      isCounted = false
      runtime.lookups.finished(self)
      runtime.endPending()
    }
    let told = completion
    completion = nil
    guard let outcome else { return }
    self.outcome = nil
    told?.lookedUp(outcome)
  }

  /// Releases the completion without calling it. The lookup was started in the parent, and the child ends the
  /// parent's calls.
  public override func runInChild() { completion = nil }

  /// Starts the lookup's thread. Called on the driving thread.
  fileprivate func startThread() {
    isCounted = true
    runtime.beginPending()
    var id: UInt64 = 0
    let failure = OwnThread.start(self, &id, detached: true) { argument in
      guard let argument else { return nil }
      Unmanaged<Lookup>.fromOpaque(argument).takeRetainedValue().ask()
      return nil
    }
    if failure != 0 { finish(.failed(words("a thread to look up the name could not be started"))) }
  }

  private func ask() {
    cs_thread_name("penstock-dns")
    finish(services == nil ? runtime.platform.addresses(of: name, port: port) : servers())
  }

  /// Looks up the addresses of a host with getaddrinfo.
  public static func addresses(of name: UnsafeRawPointer?, port: UInt16) -> LookupOutcome {
    var list: UnsafeMutablePointer<addrinfo>?
    var system: Int32 = 0
    let code = cs_resolve(name, port, &list, &system)
    defer { if let list { freeaddrinfo(list) } }
    if code != 0 {
      if system != 0 {
        let text = withUnsafeTemporaryAllocation(of: CChar.self, capacity: 128) { buffer -> [UInt8] in
          cs_error_text(system, buffer.baseAddress, 128)
          return words(buffer.baseAddress.map { UnsafePointer($0) })
        }
        return .failed(text)
      }
      return .failed(words(gai_strerror(code)))
    }
    var addresses: [SocketAddress] = []
    var next = list
    while let entry = next, addresses.count < mostAddresses {
      if let raw = entry.pointee.ai_addr, let address = SocketAddress(raw, length: entry.pointee.ai_addrlen) {
        addresses.append(address)
      }
      next = entry.pointee.ai_next
    }
    return addresses.isEmpty ? .failed(words("the name has no address")) : .addresses(addresses)
  }

  private static let mostAddresses = 256
  /// The time in ns after which no further hosts of SRV records are looked up, if at least one address was
  /// found. So a slow name server of one host does not delay the use of the other hosts.
  private static let patience: UInt64 = 5_000_000_000

  /// Queries the SRV records, and looks up the hosts that they name. Returns the addresses of the hosts in
  /// the order in which they should be tried.
  private func servers() -> LookupOutcome {
    let platform = runtime.platform
    let host = ByteBuffer()
    if let services, services.count > 0 { host.say(services.view).say(".") }
    host.say(cString: name)
    let failure = ByteBuffer().say(host.view).say(": ")
    let start = failure.count
    let answer = ByteBuffer()
    let room: Int32 = 65535
    let name = host.append(byte: 0) ? host.view.baseAddress : nil
    let length = platform.services(of: name, into: answer.spare(atLeast: Int(room))?.baseAddress, room)
    answer.commit(Int(length))
    let lack = length < 0 ? cs_descriptor_lack() : 0
    if lack != 0 {
      failure.say(errno: lack)
    } else if length < 0, length != EAI_NONAME {
      failure.say(cString: gai_strerror(length))
    } else {
      failure.say("no SRV record with a server")
    }
    var records = ServiceRecords(answer)
    var found: [LookupOutcome.Server] = []
    let limit = platform.clock() &+ Lookup.patience
    while found.count < Lookup.mostAddresses, !isCancelled.load(ordering: .relaxed),
      found.isEmpty || platform.clock() < limit,
      let record = records.take(random: platform.random(), into: host)
    {
      failure.truncate(to: start)
      failure.say(host.view)
      // Cuts off the NUL at the host's end.
      failure.truncate(to: failure.count - 1)
      switch platform.addresses(of: host.view.baseAddress, port: record.port) {
      case .addresses(let list):
        // The addresses of a host share the weight of its SRV record. So a host with more addresses does not
        // get more calls.
        let weight = (record.share << 8) / UInt32(truncatingIfNeeded: max(list.count, 1))
        for address in list {
          found.append(LookupOutcome.Server(address: address, weight: weight, priority: record.priority))
        }
      case .failed(let words): failure.say(": ").say(words)
      case .servers: break
      }
    }
    return found.isEmpty ? .failed([UInt8](failure.view)) : .servers(found)
  }
}

/// The lookups of one runtime: running ones and queued ones. Only the driving thread uses it.
final class LookupQueue {
  static let limit = 4
  private(set) var running: [Lookup] = []
  private var queued: [Lookup] = []

  fileprivate func start(_ lookup: Lookup, _ name: UnsafeMutablePointer<CChar>) {
    lookup.name = name
    if running.count < LookupQueue.limit {
      running.append(lookup)
      lookup.startThread()
    } else {
      queued.append(lookup)
    }
  }

  fileprivate func finished(_ lookup: Lookup) {
    running.drop(lookup)
    if running.count < LookupQueue.limit, !queued.isEmpty {
      let next = queued[0]
      queued.drop(next)
      running.append(next)
      next.startThread()
    }
  }

  /// Takes a cancelled lookup out of the queue. A cancelled lookup that has a thread stays in `running` until
  /// the thread has finished.
  fileprivate func forget(_ lookup: Lookup) { queued.drop(lookup) }

  /// Drops all lookups, and releases their completions without calling them. Called when the runtime has
  /// ended, and in a forked child, in which the threads of the lookups do not exist.
  func drop() {
    while let lookup = running.popLast() ?? queued.popLast() {
      let dropped = lookup.completion
      lookup.completion = nil
      _ = dropped
    }
  }
}
