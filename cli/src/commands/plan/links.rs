//! The links of a cluster, as options of a command.

use crate::config::Memory;
use pipewright::plan::{Cluster, LinkCost};

/// The links of a cluster, in place of measured ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::Args)]
pub(in crate::commands) struct Links {
    /// How many hosts share the ranks; ranks that follow each other are on one host [default: 1]
    #[arg(long, value_name = "H", value_parser = clap::value_parser!(u32).range(1..))]
    hosts: Option<u32>,
    /// Bytes a second between two ranks of a host, such as 5GB [default: as measured]
    #[arg(long, value_name = "BYTES")]
    link_bandwidth: Option<Memory>,
    /// Seconds that any message between two ranks of a host takes [default: as measured]
    #[arg(long, value_name = "SECONDS")]
    link_latency: Option<f64>,
    /// Bytes a second between two hosts, such as 1.25GB for a network card of 10 Gbit/s; the ranks of a host
    /// that send to other hosts share it [default: as measured, else as inside of a host]
    #[arg(long, value_name = "BYTES")]
    between_bandwidth: Option<Memory>,
    /// Seconds that any message between two hosts takes [default: as measured, else as inside of a host]
    #[arg(long, value_name = "SECONDS")]
    between_latency: Option<f64>,
}

impl Links {
    /// Whether none of them is given.
    pub(in crate::commands) fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether there are several hosts.
    pub(in crate::commands) fn are_of_hosts(&self) -> bool {
        self.hosts.is_some_and(|hosts| hosts > 1)
    }

    /// How many hosts there are.
    pub(in crate::commands) fn hosts(&self) -> u32 {
        self.hosts.unwrap_or(1)
    }

    /// The cluster with what is given.
    pub(in crate::commands) fn of(&self, measured: &Cluster) -> Cluster {
        let inside = with(measured.inside, self.link_bandwidth, self.link_latency);
        Cluster {
            hosts: self.hosts.unwrap_or(measured.hosts),
            inside,
            between: match (self.between_bandwidth, self.between_latency) {
                (None, None) => measured.between,
                (bandwidth, latency) => Some(with(measured.between.unwrap_or(inside), bandwidth, latency)),
            },
            add: measured.add,
        }
    }
}

fn with(link: LinkCost, bandwidth: Option<Memory>, latency: Option<f64>) -> LinkCost {
    LinkCost {
        latency: latency.unwrap_or(link.latency),
        per_byte: bandwidth.map_or(link.per_byte, |bandwidth| 1.0 / bandwidth.bytes()),
    }
}
