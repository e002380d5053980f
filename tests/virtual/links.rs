//! The links of a virtual world. Frames come late, are lost, come twice or in another order. A small protocol
//! repairs this: frames have numbers, lost ones are sent again, and what comes twice is dropped.

use super::*;

/// How links are, all of them. Times are in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) delay: u64,
    /// At most so much more.
    pub(crate) jitter: u64,
    /// Whether parcels of a link with different calls or tags may overtake each other.
    pub(crate) reorders: bool,
    /// How many frames in a thousand are lost.
    pub(crate) loses: u64,
    /// How many come twice.
    pub(crate) doubles: u64,
}

impl Weather {
    pub(crate) fn drawn(draw: &mut Draw) -> Self {
        Self {
            delay: *draw.one_of(&[1, 20, 200]),
            jitter: *draw.one_of(&[0, 50, 1_000, 20_000]),
            reorders: draw.chance(500),
            loses: *draw.one_of(&[0, 0, 20, 200]),
            doubles: *draw.one_of(&[0, 0, 50]),
        }
    }
}

/// After so long, a frame that did not arrive is sent again.
const AGAIN: u64 = 2_000;

/// After so long, a rank is told that it has lost the sender.
const SILENCE: u64 = 50_000;

/// A frame: its link, and its number on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    from: usize,
    to: usize,
    number: u64,
}

/// What follows when a frame arrives.
#[derive(Default)]
pub(crate) struct Arrival {
    pub(crate) parcels: Vec<Parcel<Tensor>>,
    /// Further frames, and when they arrive.
    pub(crate) frames: Vec<(u64, Frame)>,
    pub(crate) notes: Vec<(Option<usize>, What)>,
}

pub(crate) struct Net {
    weather: Weather,
    down: Vec<Down>,
    links: HashMap<(usize, usize), Link>,
}

/// A link that carries nothing between these times.
struct Down {
    fault: Fault,
    ranks: [usize; 2],
    from: u64,
    until: u64,
    /// Whether it has harmed anything.
    is_noted: bool,
}

#[derive(Default)]
struct Link {
    sent: u64,
    /// Those that were not handed over.
    on_the_way: BTreeMap<u64, Sent>,
}

struct Sent {
    parcel: Parcel<Tensor>,
    has_come: bool,
}

impl Net {
    pub(crate) fn new(weather: Weather, faults: &[Fault]) -> Self {
        let down = |fault: &Fault| {
            let (ranks, from, until) = match fault {
                Fault::Down { ranks, at, micros } => (*ranks, *at, at + micros),
                Fault::Cut { ranks, at } => (*ranks, *at, u64::MAX),
                _ => return None,
            };
            Some(Down { fault: fault.clone(), ranks, from, until, is_noted: false })
        };
        Self { weather, down: faults.iter().filter_map(down).collect(), links: HashMap::new() }
    }

    /// Sends a parcel. Returns its frames, and when they arrive.
    pub(crate) fn send(&mut self, now: u64, draw: &mut Draw, parcel: Parcel<Tensor>) -> Vec<(u64, Frame)> {
        let (from, to) = (parcel.from().index(), parcel.to().index());
        let link = self.links.entry((from, to)).or_default();
        let number = link.sent;
        link.sent += 1;
        let has_come = false;
        link.on_the_way.insert(number, Sent { parcel, has_come });
        let frame = Frame { from, to, number };
        let mut frames = vec![(now + self.time(draw), frame)];
        if draw.chance(self.weather.doubles) {
            frames.push((now + self.time(draw), frame));
        }
        frames
    }

    fn time(&self, draw: &mut Draw) -> u64 {
        self.weather.delay + draw.below(self.weather.jitter + 1)
    }

    /// A frame arrives, unless it is lost.
    pub(crate) fn arrive(&mut self, now: u64, draw: &mut Draw, frame: Frame) -> Arrival {
        let mut arrival = Arrival::default();
        let Frame { from, to, number } = frame;
        let time = self.time(draw);
        let Some(sent) = self.links.get(&(from, to)).and_then(|link| link.on_the_way.get(&number)) else {
            arrival.notes.push((Some(to), What::Again(from)));
            return arrival;
        };
        let load = sent.parcel.load();
        let down = self.down.iter_mut().find(|down| {
            (down.ranks == [from, to] || down.ranks == [to, from]) && (down.from..down.until).contains(&now)
        });
        if let Some(down) = down
            && !(load == Load::Stopped && down.until == u64::MAX)
        {
            if !down.is_noted {
                arrival.notes.push((None, What::Fault(down.fault.clone())));
                down.is_noted = true;
            }
            if down.until == u64::MAX {
                self.lose(now, frame, &mut arrival);
            } else {
                arrival.notes.push((Some(from), What::Lost(to, load)));
                arrival.frames.push((down.until + time, frame));
            }
            return arrival;
        }
        if draw.chance(self.weather.loses) {
            arrival.notes.push((Some(from), What::Lost(to, load)));
            arrival.frames.push((now + AGAIN + time, frame));
            return arrival;
        }
        let link = self.links.get_mut(&(from, to)).expect("it was found");
        link.on_the_way.get_mut(&number).expect("it was found").has_come = true;
        arrival.parcels = link.hand_over(self.weather.reorders);
        arrival
    }

    /// The link is cut: the receiver is told, once, that the sender has stopped.
    fn lose(&mut self, now: u64, frame: Frame, arrival: &mut Arrival) {
        let link = self.links.get_mut(&(frame.from, frame.to)).expect("it was found");
        let lost = std::mem::take(&mut link.on_the_way);
        if let Some((number, sent)) = lost.into_iter().next() {
            let parcel = sent.parcel.into_stopped();
            link.on_the_way.insert(number, Sent { parcel, has_come: false });
            arrival.frames.push((now + SILENCE, Frame { number, ..frame }));
        }
    }
}

impl Link {
    /// Takes out what may be handed over now, in order.
    fn hand_over(&mut self, reorders: bool) -> Vec<Parcel<Tensor>> {
        let mut blocked: Vec<(Call, Load)> = Vec::new();
        let mut ready = Vec::new();
        for (number, sent) in &self.on_the_way {
            let load = (sent.parcel.call(), sent.parcel.load());
            let waits = blocked.contains(&load) || !blocked.is_empty() && !reorders;
            match sent.has_come && !waits {
                true => ready.push(*number),
                false => blocked.push(load),
            }
        }
        let taken = ready.into_iter().filter_map(|number| self.on_the_way.remove(&number));
        taken.map(|sent| sent.parcel).collect()
    }
}
