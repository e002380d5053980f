//! An answer that is told while it is written, as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;

use futures_util::stream::{Stream, unfold};
use hyper::body::{Bytes, Frame};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::answer::{Head, ending, failed};
use super::queue::Told;

/// The events of an answer.
struct Events {
    head: Head,
    told: UnboundedReceiver<Told>,
    with_usage: bool,
    waiting: VecDeque<String>,
    is_over: bool,
}

/// The body of a streamed answer. If nobody reads it any more, it is dropped, and with it the receiver: then
/// the model goes on to the next request.
pub(super) fn body(
    head: Head,
    told: UnboundedReceiver<Told>,
    with_usage: bool,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    let waiting = head.begin().iter().map(event).collect();
    let events = Events { head, told, with_usage, waiting, is_over: false };
    unfold(events, |mut events| async move {
        let event = events.next().await?;
        Some((Ok(Frame::data(Bytes::from(event))), events))
    })
}

impl Events {
    async fn next(&mut self) -> Option<String> {
        while self.waiting.is_empty() && !self.is_over {
            match self.told.recv().await {
                Some(Told::Text(_, text)) => self.push(&self.head.text(&text)),
                // Streams tell no probabilities.
                Some(Told::Scored(..)) => {}
                Some(Told::End(_, by_itself, count)) => {
                    self.push(&self.head.end(by_itself));
                    if self.with_usage {
                        self.push(&self.head.usage(count));
                    }
                    self.waiting.push_back("data: [DONE]\n\n".to_owned());
                    self.is_over = true;
                }
                Some(Told::Failed(problem)) => self.fail(&failed(&problem).json()),
                None => self.fail(&ending().json()),
            }
        }
        self.waiting.pop_front()
    }

    fn push(&mut self, value: &Value) {
        self.waiting.push_back(event(value));
    }

    fn fail(&mut self, problem: &Value) {
        self.push(problem);
        self.is_over = true;
    }
}

/// An event with this value. It is one line: JSON writes line breaks as `\n`.
fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}
