import PenstockWire
import Synchronization

/// The hops of one call, in the order of its chain. When the call has ended, the chain keeps them for a later call: to
/// make a hop anew for each call would cost 600 instructions.
///
/// Each hop has a reference to its row, and the row has references to its hops: `dissolve` breaks this cycle.
final class HopRow {
  /// The call, a reference that is not counted: the call exists as long as it runs, and as long as `kept` holds it.
  fileprivate(set) unowned(unsafe) var call: Call
  /// Keeps the call if a hop may be used longer than the call runs.
  var kept: Call?
  fileprivate var next: Unmanaged<HopRow>?
  private(set) var hops = Hops()
  /// The Face of the hops of the run: read by any thread, written by the driving thread only.
  let face = Atomic<UInt8>(Face.waiting.rawValue)
  /// Whether the row must not be used again, because somebody keeps a reference to one of its hops, which another
  /// thread may release, or because some hops were made anew. Set on any thread that knows that the call goes on.
  let isSpent = Atomic<Bool>(false)
  /// Hops that were replaced. An event may still be on its way through one of them.
  private var replaced: [Hop] = []
  /// Whether a hop of the row was looked at, by its handle or for `create`. If not, nobody can have a reference to a
  /// hop, and no hop was written to. Any thread.
  let wasLookedAt = Atomic<Bool>(false)

  fileprivate init(_ call: Call, _ entries: [Chain.Entry]) {
    self.call = call
    let base = UnsafeMutablePointer<Unmanaged<Hop>>.allocate(capacity: entries.count)
    for (index, entry) in entries.enumerated() {
      (base + index).initialize(to: .passRetained(Hop(self, index, entry)))
    }
    hops = Hops(base: base, count: entries.count)
  }

  /// Called when no call has the row any more.
  func dissolve() {
    for index in 0..<hops.count { hops.at(index).release() }
    hops.base?.deallocate()
    hops = Hops()
    replaced = []
  }

  /// Replaces `old` by `fresh`; the old one is kept until `forgetReplaced`.
  @inline(never) @_optimize(size)
  func replace(_ old: Hop, by fresh: Hop) {
    old.lend()
    replaced.append(old)
    hops.at(old.index).release()
    hops.base.unsafelyUnwrapped[old.index] = .passRetained(fresh)
  }

  /// Releases the replaced hops. Called between two events.
  func forgetReplaced() { if !replaced.isEmpty { replaced = [] } }

  /// A view of the hops, without a reference.
  struct Hops: RandomAccessCollection {
    fileprivate(set) var base: UnsafeMutablePointer<Unmanaged<Hop>>?
    var count = 0

    var startIndex: Int { 0 }
    var endIndex: Int { count }

    @inline(__always)
    func at(_ index: Int) -> Unmanaged<Hop> {
      assert(index >= 0 && index < count)
      return base.unsafelyUnwrapped[index]
    }

    /// Whether the row has the only reference to the hop.
    fileprivate func isUniquelyReferenced(_ index: Int) -> Bool {
      UnsafeMutableRawPointer(base.unsafelyUnwrapped).withMemoryRebound(to: Hop.self, capacity: count) {
        isKnownUniquelyReferenced(&$0[index])
      }
    }

    subscript(index: Int) -> Hop { at(index).takeUnretainedValue() }
  }
}

extension Chain {
  /// The rows of a chain that no call uses at present, for the driving thread. The stock may outlive its chain, so
  /// that a call can still give back its row; without the chain the row is dissolved.
  final class Stock {
    let table: UnsafePointer<Callbacks>
    /// The chain may be released on another thread while a call gives back its row.
    private let lock = SpinLock()
    private var first: Unmanaged<HopRow>?
    private var kept = 0
    private var isOpen = true
    /// The most hops that are kept. A thousand hops take about 300 KiB, and each method has its own stock if
    /// filters differ by method. A long chain keeps more hops, so that a hundred calls with 32 hops find a
    /// row each: with a limit of 1,024 every second of these calls would make its row anew, and cost a third
    /// more.
    private let limit: Int

    init(_ entries: [Chain.Entry]) {
      limit = min(max(1024, 128 * entries.count), 4096)
      let table = UnsafeMutablePointer<Callbacks>.allocate(capacity: 1)
      table.initialize(to: Callbacks(entries))
      self.table = UnsafePointer(table)
    }

    deinit {
      table.pointee.deallocate()
      table.deallocate()
    }

    /// Takes a row for a call of this chain, or makes one.
    func take(_ call: Call) -> Unmanaged<HopRow> {
      guard let row = first else { return .passRetained(HopRow(call, call.chain?.entries ?? [])) }
      row._withUnsafeGuaranteedRef {
        first = $0.next
        kept -= $0.hops.count
        $0.call = call
      }
      return row
    }

    /// Takes back the row of a call whose hops no other thread has. The call still has its chain, so the stock is
    /// open. False: there is no room.
    func givePrivate(_ row: Unmanaged<HopRow>) -> Bool {
      row._withUnsafeGuaranteedRef {
        let total = kept + $0.hops.count
        if total > limit { return false }
        kept = total
        $0.next = first
        first = row
        return true
      }
    }

    /// Takes back a row, after the call's last step. A row with a hop that somebody else has, or that another thread
    /// has had, is not used again.
    @inline(never) @_optimize(size)
    func give(_ owned: Unmanaged<HopRow>, of call: Call, runLength: Int) {
      let row = owned.takeUnretainedValue()
      var isFree = kept + row.hops.count <= limit && !row.isSpent.load(ordering: .relaxed)
      for index in row.hops.indices {
        row.hops.at(index)._withUnsafeGuaranteedRef { hop in
          if row.hops.isUniquelyReferenced(index), !hop.hasExecutors {
            if index < runLength { hop.renewInRun() }
          } else {
            isFree = false
          }
        }
      }
      guard isFree else {
        row.kept = call
        Stock.drop(owned)
        return
      }
      for index in runLength..<max(row.hops.count, runLength) { row.hops[index].renew() }
      row.kept = nil
      row.wasLookedAt.store(false, ordering: .relaxed)
      lock.lock()
      let isTaken = isOpen
      if isTaken {
        // The stock is open, so the chain exists, and with it the registrations.
        if table.pointee.hasCreate { for index in 0..<runLength { row.hops[index].resetState() } }
        for index in runLength..<max(row.hops.count, runLength) { row.hops[index].begin() }
        row.next = first
        first = owned
        kept += row.hops.count
      }
      lock.unlock()
      if !isTaken { Stock.drop(owned) }
    }

    /// Called when the chain is released; its registrations exist until `close` returns. Any thread.
    func close() {
      lock.lock()
      isOpen = false
      var next = first
      first = nil
      lock.unlock()
      while let row = next {
        next = row._withUnsafeGuaranteedRef { $0.next }
        Stock.drop(row)
      }
    }

    static func drop(_ row: Unmanaged<HopRow>) {
      row._withUnsafeGuaranteedRef { $0.dissolve() }
      row.release()
    }
  }
}
