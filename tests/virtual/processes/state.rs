//! The state of a hub: what time it is, what is on its way, where each process is, and whose turn it is.

use std::collections::HashSet;

use super::story::Story;
use crate::*;

/// What is said of a process that joins its run again: with weights that the processes have kept, or without.
pub(crate) const FROM_A_SNAPSHOT: &str = "goes on from a snapshot";
pub(crate) const ANEW: &str = "begins anew";

/// A line in one direction: the number of its world, and the processes from and to which it goes.
pub(super) type Line = (u64, usize, usize);

/// What was sent on a line. `None`: its end.
type Sent = (Line, Option<Vec<u8>>);

pub(super) struct State {
    /// In microseconds.
    pub(super) now: u64,
    pub(super) draw: Draw,
    pub(super) processes: Vec<Process>,
    pub(super) turn: Option<usize>,
    /// How many worlds there have been. A process that joins comes into the next one.
    pub(super) worlds: u64,
    /// What is on its way, by the time of its arrival.
    pub(super) due: BTreeMap<(u64, u64), Sent>,
    events: u64,
    /// When the last bytes of a line arrive.
    last: HashMap<Line, u64>,
    /// Lines on which nothing is sent any more.
    ended: HashSet<Line>,
    /// How late bytes are: at least, and so much more at most.
    delay: [u64; 2],
    story: Story,
    /// Processes that have launched for the first time.
    launched: HashSet<usize>,
    /// Somebody has done all steps: nobody dies any more.
    pub(super) is_done: bool,
    /// By process: how many steps it has begun in this world.
    steps: Vec<u32>,
    /// How many have died since all have done a step in one world. Before, they may not have all snapshots.
    lost: Option<u32>,
    /// Whether one has died in this world.
    died_here: bool,
    /// A thread looks who goes on.
    pub(super) moves: bool,
    /// How often nobody could move.
    pub(super) stuck: u32,
    pub(super) timeline: Timeline,
    /// Why the hub has ended, if that is a bug.
    pub(super) verdict: Option<String>,
    pub(super) is_over: bool,
}

pub(super) struct Process {
    pub(super) is: Is,
    /// How often it has died.
    pub(super) deaths: u64,
    /// How often it has sent or waited.
    moments: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Is {
    /// It has died, or was not there yet. It will join.
    Starting,
    Joining,
    /// It can go on from this time.
    Ready(u64),
    Waiting,
    Gone,
}

impl State {
    pub(super) fn new(story: &Story) -> Self {
        let mut draw = Draw::new(story.seed);
        let delay = [*draw.one_of(&[1, 20, 200]), *draw.one_of(&[1, 50, 1_000, 20_000])];
        let process = |_| Process { is: Is::Starting, deaths: 0, moments: 0 };
        Self {
            now: 0,
            draw,
            processes: (0..story.processes()).map(process).collect(),
            turn: None,
            worlds: 0,
            due: BTreeMap::new(),
            events: 0,
            last: HashMap::new(),
            ended: HashSet::new(),
            delay,
            story: story.clone(),
            launched: HashSet::new(),
            is_done: false,
            steps: vec![0; story.processes()],
            lost: None,
            died_here: false,
            moves: false,
            stuck: 0,
            timeline: Timeline::default(),
            verdict: None,
            is_over: false,
        }
    }

    pub(super) fn note(&mut self, process: usize, what: What) {
        self.timeline.note(self.now, Some(process), what);
    }

    /// Whether a line carries anything.
    pub(super) fn is_open(&self, line: Line) -> bool {
        !self.ended.contains(&line)
    }

    /// Sends bytes, or the end of a line. They arrive after what was sent before.
    pub(super) fn send(&mut self, line: Line, bytes: Option<Vec<u8>>) {
        let [least, more] = self.delay;
        let at = self.now + least + self.draw.below(more);
        let last = self.last.entry(line).or_default();
        *last = at.max(*last);
        if bytes.is_none() {
            self.ended.insert(line);
        }
        self.events += 1;
        self.due.insert((*last, self.events), (line, bytes));
    }

    /// Ends a line at once: what is on its way does not arrive.
    pub(super) fn cut(&mut self, line: Line) {
        self.due.retain(|_, (of, _)| *of != line);
        self.send(line, None);
    }

    /// From now on processes may die, when all have launched.
    pub(super) fn launched(&mut self, process: usize) {
        self.launched.insert(process);
    }

    /// A process sends or waits. Returns whether it dies at that moment.
    pub(super) fn dies(&mut self, process: usize) -> bool {
        if self.launched.len() < self.processes.len() || self.is_done {
            return false;
        }
        let moment = self.processes[process].moments;
        self.processes[process].moments += 1;
        let is_now = |death: &super::story::Death| death.process == process && death.moment == moment;
        if !self.story.deaths.iter().any(is_now) {
            return false;
        }
        self.note(process, What::Dies);
        self.lost = self.lost.map(|lost| lost + 1);
        self.died_here = true;
        self.processes[process].deaths += 1;
        self.processes[process].is = Is::Starting;
        self.turn = None;
        self.end_lines(process);
        true
    }

    /// All lines of a process end. Of what it has sent, a part may still arrive, to the middle of a frame.
    fn end_lines(&mut self, process: usize) {
        for other in (0..self.processes.len()).filter(|other| *other != process) {
            let line = (self.worlds, process, other);
            if self.ended.contains(&line) {
                continue;
            }
            let on_the_way = self.due.iter().filter(|(_, (of, _))| *of == line);
            let mut on_the_way: Vec<(u64, u64)> = on_the_way.map(|(at, _)| *at).collect();
            let arrive = self.draw.below(on_the_way.len() as u64 + 1) as usize;
            for (index, at) in on_the_way.drain(arrive..).enumerate() {
                match self.due.get_mut(&at) {
                    Some((_, Some(bytes))) if index == 0 => {
                        bytes.truncate(self.draw.below(bytes.len() as u64 + 1) as usize);
                    }
                    _ => drop(self.due.remove(&at)),
                }
            }
            self.send(line, None);
            self.cut((self.worlds, other, process));
        }
    }

    /// All who are there have joined: the next world begins. If somebody has left, there is none.
    pub(super) fn begin(&mut self) {
        self.worlds += 1;
        self.steps.fill(0);
        self.died_here = false;
        let says = match self.has_ended() {
            true => "--- the run has ended".to_owned(),
            false => format!("--- world {} begins", self.worlds),
        };
        self.timeline.note(self.now, None, What::Says(says));
        for process in &mut self.processes {
            if process.is == Is::Joining {
                process.is = Is::Ready(self.now);
            }
        }
    }

    /// A process is told of a failure. Of a lost process it is told how: the ends of lines are seen.
    pub(super) fn is_told(&mut self, process: usize, failure: &str) {
        self.note(process, What::Says(format!("is told: {failure}")));
        let is_lost = failure.contains("has stopped without saying why");
        if is_lost && !failure.contains("its connections were closed") {
            self.end_badly("a process is not told how another one was lost:");
        }
    }

    /// A process goes on from a snapshot, or not. If only one was lost, the next one keeps its snapshots.
    pub(super) fn returns(&mut self, process: usize, step: Option<u64>) {
        let says = match step {
            Some(step) => format!("{FROM_A_SNAPSHOT} before step {step}"),
            None => ANEW.to_owned(),
        };
        self.note(process, What::Says(says));
        if step.is_none() && self.lost == Some(1) {
            self.end_badly("one process was lost, and with it all snapshots:");
        }
        if step.is_none() {
            self.lost = None;
        }
    }

    /// A process begins a step.
    pub(super) fn begins_step(&mut self, process: usize, step: u64) {
        self.note(process, What::Says(format!("--- step {step}")));
        self.steps[process] += 1;
        if !self.died_here && self.steps.iter().all(|begun| *begun > 1) {
            self.lost = Some(0);
        }
    }

    /// Whether a process has left.
    pub(super) fn has_ended(&self) -> bool {
        self.processes.iter().any(|process| process.is == Is::Gone)
    }

    pub(super) fn end_badly(&mut self, why: &str) {
        let mut situation = why.to_owned();
        for (process, is) in self.processes.iter().enumerate() {
            situation += &format!("\n  process {process}: {:?}", is.is);
        }
        self.timeline.note(self.now, None, What::Says(situation.clone()));
        self.verdict = Some(situation);
        self.is_over = true;
    }
}
