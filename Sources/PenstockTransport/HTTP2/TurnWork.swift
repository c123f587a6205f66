import PenstockWire

/// A task for the end of a turn of the loop.
protocol TurnTask: AnyObject {
  /// Whether the task is in one of the lists of `TurnWork`, which sets this.
  var isScheduled: Bool { get set }
  func runInTurn()
}

/// The work of a channel at the end of a turn: first the tasks that were put off, then one write for each
/// connection. An attempt puts off a task in order not to call its call back from within a function that the
/// call has called. Driving thread only.
final class TurnWork: TurnEndHandler {
  private let runtime: Runtime
  private var tasks: [any TurnTask] = []
  private var writes: [any TurnTask] = []
  /// The tasks for the next turn.
  private var later: [any TurnTask] = []
  private var running: [any TurnTask] = []
  private var isRegistered = false
  private var isRunning = false
  /// The most rounds in one turn. There is a limit because tasks may schedule tasks; the rest is done in the
  /// next turn, after other work.
  private static let rounds = 16

  init(_ runtime: Runtime) {
    self.runtime = runtime
    super.init()
  }

  func schedule(_ task: any TurnTask) {
    if task.isScheduled { return }
    task.isScheduled = true
    tasks.append(task)
    register()
  }

  func scheduleWrite(_ task: any TurnTask) {
    if task.isScheduled { return }
    task.isScheduled = true
    writes.append(task)
    register()
  }

  /// Schedules a task for the next turn, after everything else in the loop.
  func scheduleLater(_ task: any TurnTask) {
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

  override func turnEnded() {
    isRegistered = false
    isRunning = true
    while let task = later.popLast() { tasks.append(task) }
    var rounds = TurnWork.rounds
    while rounds > 0, !tasks.isEmpty || !writes.isEmpty {
      rounds -= 1
      // The tasks are moved out first, because tasks schedule tasks. The emptied array goes back for its storage.
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
}
