import PenstockWire

/// A task that runs at the end of a turn of the event loop.
public protocol TurnTask: AnyObject {
  /// Whether the task is in one of the lists of `TurnWork`, which sets this.
  var isScheduled: Bool { get set }
  func runInTurn()
}

/// The work of a channel at the end of a turn of the event loop: first the delayed tasks, then one write for
/// each connection. An attempt delays a task so that it does not call back its call from within a function
/// that the call has called. Driving thread only.
public final class TurnWork: TurnEndHandler {
  private let runtime: Runtime
  private var tasks: [any TurnTask] = []
  private var writes: [any TurnTask] = []
  /// The tasks that run at the end of the next turn.
  private var later: [any TurnTask] = []
  private var running: [any TurnTask] = []
  private var isRegistered = false
  private var isRunning = false
  /// The most rounds of tasks in one turn. Tasks may schedule further tasks without end, so the rest runs in
  /// the next turn, after other work.
  private static let rounds = 16

  public init(_ runtime: Runtime) {
    self.runtime = runtime
    super.init()
  }

  public func schedule(_ task: any TurnTask) {
    if task.isScheduled { return }
    task.isScheduled = true
    tasks.append(task)
    register()
  }

  public func scheduleWrite(_ task: any TurnTask) {
    if task.isScheduled { return }
    task.isScheduled = true
    writes.append(task)
    register()
  }

  /// Schedules a task for the end of the next turn, after all other work of the loop.
  public func scheduleLater(_ task: any TurnTask) {
    if task.isScheduled { return }
    task.isScheduled = true
    later.append(task)
    register()
  }

  private func register() {
    if isRegistered || isRunning { return }
    isRegistered = true
    runtime.atTurnEnd(self)
  }

  public override func turnEnded() {
    isRegistered = false
    isRunning = true
    while let task = later.popLast() { tasks.append(task) }
    var rounds = TurnWork.rounds
    while rounds > 0, !tasks.isEmpty || !writes.isEmpty {
      rounds -= 1
      // The list of tasks is moved to `running`, because a task may schedule tasks. The swap also keeps the
      // memory of both arrays.
      if !tasks.isEmpty { swap(&tasks, &running) } else { swap(&writes, &running) }
      var index = 0
      while index < running.count {
        let task = running[index]
        index += 1
        task.isScheduled = false
        task.runInTurn()
      }
      running.clear()
    }
    isRunning = false
    if !tasks.isEmpty || !writes.isEmpty || !later.isEmpty { register() }
  }

  /// Releases the tasks, which otherwise would keep themselves: a connection holds this object.
  public override func dropped() {
    isRegistered = false
    tasks = []
    writes = []
    later = []
  }
}
