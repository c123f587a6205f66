import PenstockWire

/// The hops of one call, in the order of its chain. The chain keeps those of calls that have ended for the next ones:
/// making a hop anew for each call cost 600 instructions.
final class HopRow {
  let hops: Hops
  fileprivate var next: HopRow?

  fileprivate init(_ call: Call, _ entries: [Chain.Entry]) {
    let base = UnsafeMutablePointer<Unmanaged<Hop>>.allocate(capacity: entries.count)
    for (index, entry) in entries.enumerated() {
      (base + index).initialize(to: .passRetained(Hop(call, index, entry)))
    }
    hops = Hops(base: base, count: entries.count)
  }

  deinit {
    for index in 0..<hops.count { hops.at(index).release() }
    hops.base?.deallocate()
  }
}

/// A view of them, without a reference.
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

  /// Nobody else has a reference.
  fileprivate func isAlone(_ index: Int) -> Bool {
    UnsafeMutableRawPointer(base.unsafelyUnwrapped).withMemoryRebound(to: Hop.self, capacity: count) {
      isKnownUniquelyReferenced(&$0[index])
    }
  }

  subscript(index: Int) -> Hop {
    get { at(index).takeUnretainedValue() }
    nonmutating set {
      at(index).release()
      base.unsafelyUnwrapped[index] = .passRetained(newValue)
    }
  }
}

/// The rows of hops that no call of a chain has; the driving thread's. It outlives its chain, so that a call may give
/// back its row when the chain has gone: then they are not wanted any more.
final class HopStock {
  /// Which hops have which callbacks.
  let masks: CallbackMasks
  /// The chain may go on another thread while a call that has let it go gives back its row.
  private let lock = SpinLock()
  private var first: HopRow?
  private var kept = 0
  private var isOpen = true
  /// In hops: a thousand of them are some 300 KiB.
  private static let limit = 1024

  init(_ masks: CallbackMasks) { self.masks = masks }

  /// `chain` is there until this returns.
  func take(_ call: Call, of chain: Chain) -> HopRow {
    guard let row = first else { return HopRow(call, chain.entries) }
    first = row.next
    row.next = nil
    kept -= row.hops.count
    for index in 0..<row.hops.count { row.hops.at(index)._withUnsafeGuaranteedRef { $0.call = call } }
    return row
  }

  /// After the call's last step. Hops that others have, or that other threads have had, are not used again.
  func give(_ row: HopRow, of call: Call, inStep: Int) {
    var isFree = kept + row.hops.count <= HopStock.limit && call.epoch == 0
    for index in row.hops.indices {
      row.hops.at(index)._withUnsafeGuaranteedRef { hop in
        if row.hops.isAlone(index), !hop.isLent, hop.jobs == nil {
          if index < inStep { hop.renewInStep() }
        } else {
          isFree = false
          hop.kept = call
        }
      }
    }
    guard isFree else { return }
    for index in inStep..<max(row.hops.count, inStep) { row.hops[index].renew() }
    lock.lock()
    if isOpen {
      // The registrations are there as long as the chain.
      if call.masks.create != 0 { for index in 0..<inStep { row.hops[index].resetState() } }
      for index in inStep..<max(row.hops.count, inStep) { row.hops[index].begin() }
      row.next = first
      first = row
      kept += row.hops.count
    }
    lock.unlock()
  }

  /// The chain goes; its registrations are there until this returns. Any thread.
  func close() {
    lock.lock()
    isOpen = false
    var next = first
    first = nil
    lock.unlock()
    while let row = next {
      next = row.next
      row.next = nil
    }
  }
}
