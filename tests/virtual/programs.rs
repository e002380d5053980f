//! Ends alone, without the engine: ranks send and take what a seed says. There is no barrier between calls,
//! some wires are never taken, ranks stop and begin a later attempt, and ranks repeat calls.

use std::collections::VecDeque;

use pipewright::fabric::{NO_LIMIT, Recorded};

use super::*;

type End = Box<dyn Transport<Tensor> + Send>;

/// What all ranks do in one call.
#[derive(Debug)]
struct Round {
    call: Call,
    /// By rank.
    deeds: Vec<Vec<Deed>>,
    /// By rank: whether it polls, and does its deeds in two lanes.
    polls: Vec<bool>,
    /// This rank stops before its deed of this number.
    stops: Option<(usize, usize)>,
    /// By rank: before the deed of the first number it goes back by the second number of calls, and repeats
    /// them.
    repeats: Vec<Option<(usize, usize)>>,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Send { to: usize, load: Load, item: u32 },
    Take { from: usize, load: Load, item: u32 },
}

impl Deed {
    /// Of one rank's deeds, those with one load to or from one rank are in one lane.
    fn lane(self) -> u64 {
        let (Self::Send { to: peer, load, .. } | Self::Take { from: peer, load, .. }) = self;
        match load {
            Load::Wire(tag) | Load::Block(tag) => (tag.0 + peer as u64) % 2,
            Load::Stopped => unreachable!("nobody draws this"),
        }
    }
}

/// Runs the program of a seed.
pub(crate) fn run(seed: u64) -> Result<Timeline, Box<Bug>> {
    let draw = &mut Draw::new(seed);
    let ranks = draw.within(2, 5) as usize;
    let rounds = Arc::new(rounds(draw, ranks));
    let weather = Weather::drawn(draw);
    let world = World::new(ranks, seed, weather, Vec::new());
    let threads: Vec<_> = ends(&world, ranks as u32, NO_LIMIT)
        .into_iter()
        .map(|end| {
            let rounds = Arc::clone(&rounds);
            thread::spawn(move || {
                let mut program = Program::new(end, &rounds);
                let done = program.run();
                program.end.end();
                // It lives until all have ended: to drop it says that its rank has stopped.
                (done, program.end)
            })
        })
        .collect();
    let ended: Vec<_> = threads.into_iter().map(thread::JoinHandle::join).collect();
    world.end();
    let wrong = ended.into_iter().filter_map(|ended| ended.ok()?.0.err()).next();
    match world.verdict().or(wrong) {
        None => Ok(world.timeline()),
        Some(why) => Err(Box::new(Bug {
            variable: "PIPEWRIGHT_PROGRAM",
            seed,
            story: format!("{weather:?}\n{rounds:#?}"),
            why,
            timeline: world.timeline(),
        })),
    }
}

/// The program of one rank.
struct Program<'a> {
    end: End,
    rank: usize,
    rounds: &'a [Round],
    /// The first round that can be repeated: all since were done to their ends, and what came is kept.
    kept: usize,
}

impl<'a> Program<'a> {
    fn new(end: End, rounds: &'a [Round]) -> Self {
        let rank = end.rank().index();
        Self { end: Box::new(Recorded::new(end, Tensor::clone)), rank, rounds, kept: 0 }
    }

    fn run(&mut self) -> Result<(), String> {
        let mut at = 0;
        while let Some(round) = self.rounds.get(at) {
            if at > 0 && self.rounds[at - 1].call.attempt < round.call.attempt {
                self.end.forget();
                self.kept = at;
            }
            at = match self.round(at) {
                Ok(()) => at + 1,
                Err(Ended::Wrong(why)) => return Err(format!("rank {}, {:?}: {why}", self.rank, round.call)),
                Err(Ended::Stopped) => {
                    let later = self.rounds[at..].iter().position(|round| round.stops.is_some());
                    let Some(later) = later else {
                        return Err(format!("rank {}: a rank has stopped, and none does", self.rank));
                    };
                    at + later + 1
                }
            };
        }
        Ok(())
    }

    fn round(&mut self, at: usize) -> Result<(), Ended> {
        let round = &self.rounds[at];
        let (deeds, polls) = (&round.deeds[self.rank], round.polls[self.rank]);
        self.end.keep(round.call);
        self.end.begin(round.call)?;
        if let Some((rank, deed)) = round.stops
            && rank == self.rank
        {
            self.all(&deeds[..deed], polls)?;
            self.end.stop();
            return Ok(());
        }
        if let Some((deed, back)) = round.repeats[self.rank] {
            self.all(&deeds[..deed], polls)?;
            for again in self.kept.max(at.saturating_sub(back))..at {
                let round = &self.rounds[again];
                self.end.begin(round.call)?;
                self.all(&round.deeds[self.rank], round.polls[self.rank])?;
            }
            self.end.begin(round.call)?;
        }
        self.all(deeds, polls)
    }

    fn all(&mut self, deeds: &[Deed], in_lanes: bool) -> Result<(), Ended> {
        match in_lanes {
            true => self.in_lanes(deeds),
            false => deeds.iter().try_for_each(|deed| self.act(*deed)),
        }
    }

    /// Does these in two lanes. Each is in order, and one does not wait for the other, as a rank does that
    /// polls.
    fn in_lanes(&mut self, deeds: &[Deed]) -> Result<(), Ended> {
        let mut lanes = [0, 1].map(|lane| {
            let own = deeds.iter().filter(|deed| deed.lane() == lane);
            own.copied().collect::<VecDeque<Deed>>()
        });
        while lanes.iter().any(|lane| !lane.is_empty()) {
            let mut moved = false;
            for lane in &mut lanes {
                while let Some(deed) = lane.front()
                    && self.try_act(*deed)?
                {
                    lane.pop_front();
                    moved = true;
                }
            }
            if !moved {
                self.end.listen()?;
            }
        }
        Ok(())
    }

    /// Does it, unless it has to wait.
    fn try_act(&mut self, deed: Deed) -> Result<bool, Ended> {
        let Deed::Take { from, load, item } = deed else {
            return self.act(deed).map(|()| true);
        };
        match self.poll(WorldRank(from as u32), load)? {
            Some(got) => check(from, got, item).map(|()| true),
            None => Ok(false),
        }
    }

    fn act(&mut self, deed: Deed) -> Result<(), Ended> {
        match deed {
            Deed::Send { to, load, item } => {
                let to = WorldRank(to as u32);
                match load {
                    Load::Wire(tag) => self.end.send(to, tag, wire(item))?,
                    Load::Block(tag) => self.end.send_bytes(to, tag, item.to_le_bytes().to_vec())?,
                    Load::Stopped => unreachable!("nobody draws this"),
                }
                Ok(())
            }
            Deed::Take { from, load, item } => check(from, self.wait(WorldRank(from as u32), load)?, item),
        }
    }

    fn wait(&mut self, peer: WorldRank, load: Load) -> Result<u32, Error> {
        Ok(match load {
            Load::Wire(tag) => item_of(&self.end.wait(peer, tag)?),
            Load::Block(tag) => item_in(&self.end.recv_bytes(peer, tag)?),
            Load::Stopped => unreachable!("nobody draws this"),
        })
    }

    fn poll(&mut self, peer: WorldRank, load: Load) -> Result<Option<u32>, Error> {
        Ok(match load {
            Load::Wire(tag) => self.end.poll(peer, tag)?.as_ref().map(item_of),
            Load::Block(tag) => self.end.poll_bytes(peer, tag)?.as_deref().map(item_in),
            Load::Stopped => unreachable!("nobody draws this"),
        })
    }
}

fn check(from: usize, got: u32, item: u32) -> Result<(), Ended> {
    match got == item {
        true => Ok(()),
        false => Err(Ended::Wrong(format!("got {got} from rank {from}, and not {item}"))),
    }
}

/// Why a rank does not end its call.
enum Ended {
    Stopped,
    Wrong(String),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        match error {
            Error::PeerGone(_) => Self::Stopped,
            other => Self::Wrong(other.to_string()),
        }
    }
}

fn wire(item: u32) -> Tensor {
    Tensor::from_ids(&[1], vec![item]).expect("it fills the shape")
}

fn item_of(wire: &Tensor) -> u32 {
    wire.ids()[0]
}

fn item_in(block: &[u8]) -> u32 {
    u32::from_le_bytes(block.try_into().expect("four bytes"))
}

fn rounds(draw: &mut Draw, ranks: usize) -> Vec<Round> {
    let (mut attempt, mut items) = (0, 0);
    let mut rounds = Vec::new();
    for number in 1..=draw.within(2, 8) {
        let call = Call { attempt, number };
        let round = round(draw, ranks, call, &mut items);
        attempt += u32::from(round.stops.is_some());
        rounds.push(round);
    }
    rounds
}

/// A round that ends, no matter who is slow: what is taken was sent before, by one order of all deeds.
fn round(draw: &mut Draw, ranks: usize, call: Call, items: &mut u32) -> Round {
    let mut streams: BTreeMap<(usize, usize, u64), Vec<(u64, u32)>> = BTreeMap::new();
    let count = draw.below(25);
    for time in 0..count {
        let [from, to] = [0, 0].map(|_| draw.below(ranks as u64) as usize);
        *items += 1;
        streams.entry((from, to, draw.below(4))).or_default().push((time, *items));
    }
    let mut deeds: Vec<Vec<(u64, Deed)>> = vec![Vec::new(); ranks];
    for ((from, to, of), sent) in streams {
        let load = if of < 2 { Load::Wire(Tag(of)) } else { Load::Block(Tag(of)) };
        let mut times: Vec<u64> = sent.iter().map(|(time, _)| draw.within(time + 1, count)).collect();
        times.sort_unstable();
        // Some are never taken.
        let taken = if draw.chance(800) { sent.len() } else { draw.below(sent.len() as u64) as usize };
        for (&(_, item), time) in sent.iter().zip(times).take(taken) {
            deeds[to].push((2 * time, Deed::Take { from, load, item }));
        }
        for (time, item) in sent {
            deeds[from].push((2 * time + 1, Deed::Send { to, load, item }));
        }
    }
    let deeds: Vec<Vec<Deed>> = deeds
        .into_iter()
        .map(|mut deeds| {
            deeds.sort_by_key(|(time, _)| *time);
            deeds.into_iter().map(|(_, deed)| deed).collect()
        })
        .collect();
    let place = |draw: &mut Draw, rank: usize| draw.below(deeds[rank].len() as u64 + 1) as usize;
    let stopping = draw.below(ranks as u64) as usize;
    let stops = draw.chance(300).then(|| (stopping, place(draw, stopping)));
    let repeats = (0..ranks).map(|rank| {
        let repeats = draw.chance(200);
        repeats.then(|| (place(draw, rank), draw.below(3) as usize))
    });
    Round {
        call,
        repeats: repeats.collect(),
        polls: (0..ranks).map(|_| draw.chance(500)).collect(),
        stops,
        deeds,
    }
}
