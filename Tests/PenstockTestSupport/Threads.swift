import CPenstockSystem
import Synchronization
import Testing

@testable import PenstockLoop

/// Tests of a runtime. A test that counts the threads or descriptors of its process runs in a separate
/// process, so that it does not count those of other tests.
@Suite(.serialized, .timeLimit(.minutes(15)))
public enum RuntimeTests {}

public final class Work: InboxItem {
  private let body: () -> Void
  public init(_ body: @escaping () -> Void) { self.body = body }
  public override func run() { body() }
}

public final class Alarm: Timer {
  public var body: (Alarm) -> Void
  public init(_ body: @escaping (Alarm) -> Void) { self.body = body }
  public override func fire() { body(self) }
}

public final class Ready: ReadyHandler {
  public let body: (UInt32) -> Void
  public init(_ body: @escaping (UInt32) -> Void) { self.body = body }
  public func ready(_ events: UInt32) { body(events) }
}

public final class TurnEnd: TurnEndHandler {
  public let body: () -> Void
  public init(_ body: @escaping () -> Void) { self.body = body }
  public override func turnEnded() { body() }
}

public final class Hook: ShutdownHook {
  public let body: () -> Void
  public init(_ body: @escaping () -> Void) { self.body = body }
  public func runtimeShutdown(_ why: Closing) { body() }
}

public final class Counter: Sendable {
  public init() {}
  private let value = Atomic<Int>(0)
  public var now: Int { value.load(ordering: .sequentiallyConsistent) }
  @discardableResult public func up() -> Int { value.add(1, ordering: .sequentiallyConsistent).newValue }
}

/// A value that only one thread at a time uses. The tests are responsible for that.
public final class Box<T>: @unchecked Sendable {
  public var value: T
  public init(_ value: T) { self.value = value }
}

public final class TestThread: @unchecked Sendable {
  private var id: pthread_t = 0
  private let body: () -> Void

  public init(_ body: @escaping () -> Void) {
    self.body = body
    let r = pthread_create(
      &id, nil,
      { argument in
        // The test may run on a pool's thread with all signals blocked, so this thread unblocks them.
        var none = sigset_t()
        sigemptyset(&none)
        pthread_sigmask(SIG_SETMASK, &none, nil)
        if let argument { Unmanaged<TestThread>.fromOpaque(argument).takeRetainedValue().body() }
        return nil
      }, Unmanaged.passRetained(self).toOpaque())
    must(r == 0, "pthread_create")
  }

  public var handle: pthread_t { id }
  public func join() { pthread_join(id, nil) }
}

public func threads(_ count: Int, _ body: @escaping (Int) -> Void) {
  let all = (0..<count).map { i in TestThread { body(i) } }
  for thread in all { thread.join() }
}

/// Waits for a condition by checking it repeatedly. Fails after twenty seconds.
public func eventually(_ what: String, _ condition: () -> Bool) {
  let end = Platform.systemClock() + 20_000_000_000
  while !condition() {
    must(Platform.systemClock() < end, "in vain: \(what)")
    var nap = timespec(tv_sec: 0, tv_nsec: 200_000)
    nanosleep(&nap, nil)
  }
}

/// If `condition` is false, reports an issue and ends the process. For threads and child processes, in which
/// `#expect` does not work.
public func must(_ condition: Bool, _ what: @autoclosure () -> String, line: Int = #line) {
  if condition { return }
  let text = "line \(line): \(what())\n"
  text.withCString { _ = write(2, $0, strlen($0)) }
  Issue.record("\(text)")
  _exit(1)
}

public func makeRuntime(
  _ mode: Runtime.Mode = .thread, callerDrives: Bool = true, linger: UInt32 = 200, spin: UInt32 = 0
) -> Runtime {
  var options = Runtime.Options()
  options.mode = mode
  options.callerDrives = callerDrives
  options.lingerMicroseconds = linger
  options.spinMicroseconds = spin
  switch Runtime.make(options) {
  case .made(let runtime): return runtime
  case .failed(let code, let what):
    must(false, "\(what): errno \(code)")
    fatalError()
  }
}

extension Runtime {
  public func after(milliseconds: UInt64) -> UInt64 { Platform.systemClock() + milliseconds * 1_000_000 }

  /// Runs `body` on the driving thread and waits for it.
  public func perform(_ body: @escaping () -> Void) {
    let cell = WaitCell()
    post(
      Work {
        body()
        cell.set()
      })
    must(wait(for: cell, deadline: nil, interruptible: false) == .ready, "perform")
  }

  public func end() {
    must(shutdown(timeoutMilliseconds: 20_000) == .ok, "shutdown")
    releaseHandle()
  }
}

/// Waits until a cell is set, without driving a runtime.
public func park(_ cell: WaitCell) {
  while !cell.isSet { _ = cell.park(cell.word.load(ordering: .sequentiallyConsistent), until: nil) }
}

public func entries(_ path: String) -> [String] {
  guard let folder = cs_open_folder(path) else { return [] }
  defer { cs_close_folder(folder) }
  var names: [String] = []
  while let name = cs_next_entry(folder) {
    let text = String(cString: name)
    if text.first != "." { names.append(text) }
  }
  return names
}

/// The number of open descriptors, without the one that this function opens.
public func openDescriptors() -> Int { entries("/proc/self/fd").count - 1 }

/// The number of threads of the library. It counts threads by name, because the process may have other
/// threads that come and go.
public func libraryThreads() -> Int {
  entries("/proc/self/task").filter { task in
    let fd = cs_open_to_read("/proc/self/task/\(task)/comm")
    defer { cs_close(fd) }
    var text = [UInt8](repeating: 0, count: 16)
    let count = fd < 0 ? 0 : read(fd, &text, 16)
    return count >= 8 && text[0..<8].elementsEqual("penstock".utf8)
  }.count
}

public let underThreadSanitizer = dlsym(nil, "__tsan_init") != nil
public let noThreads: Comment = "ThreadSanitizer lets no thread start after a fork"

public func isReadable(_ fd: Int32, milliseconds: Int32 = 0) -> Bool {
  var p = pollfd(fd: fd, events: Int16(POLLIN), revents: 0)
  return poll(&p, 1, milliseconds) == 1
}

/// Forks a child, which exits with the status that `body` returns. Returns that status, or -1 if the child
/// did not exit by itself.
public func inChild(_ body: () -> Int32) -> Int32 {
  let child = cs_fork()
  if child == 0 {
    var none = sigset_t()
    sigemptyset(&none)
    pthread_sigmask(SIG_SETMASK, &none, nil)
    alarm(20)
    _exit(body())
  }
  var status: Int32 = 0
  while waitpid(child, &status, 0) < 0 && cs_errno() == EINTR {}
  return status & 0x7f == 0 ? (status >> 8) & 0xff : -1
}
