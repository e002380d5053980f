//! An answer that is told while it is written, as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;

use futures_util::stream::{Stream, unfold};
use hyper::body::{Bytes, Frame};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::answer::{Head, ending, failed, why};
use super::calls::{self, Held};
use super::queue::Told;
use super::request::Request;

/// The events of an answer.
struct Events {
    head: Head,
    told: UnboundedReceiver<Told>,
    with_usage: bool,
    /// The end of the text, if it may have calls.
    held: Option<Held>,
    waiting: VecDeque<String>,
    is_over: bool,
}

/// The body of a streamed answer. If nobody reads it any more, it is dropped, and with it the receiver: then
/// the model goes on to the next request.
pub(super) fn body(
    head: Head,
    told: UnboundedReceiver<Told>,
    request: &Request,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + use<> {
    let waiting = head.begin().iter().map(event).collect();
    let (with_usage, held) = (request.stream_usage, request.has_tools.then(Held::default));
    let events = Events { head, told, with_usage, held, waiting, is_over: false };
    unfold(events, |mut events| async move {
        let event = events.next().await?;
        Some((Ok(Frame::data(Bytes::from(event))), events))
    })
}

impl Events {
    async fn next(&mut self) -> Option<String> {
        while self.waiting.is_empty() && !self.is_over {
            match self.told.recv().await {
                Some(Told::Text(_, text)) => {
                    let sure = match &mut self.held {
                        Some(held) => held.add(&text),
                        None => text,
                    };
                    self.text(&sure);
                }
                // Streams tell no probabilities.
                Some(Told::Scored(..)) => {}
                Some(Told::End(_, by_itself, count)) => {
                    self.end(by_itself);
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

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(&self.head.text(text));
        }
    }

    /// Tells what is held, and why the text ends.
    fn end(&mut self, by_itself: bool) {
        let held = self.held.as_mut().map(Held::take).unwrap_or_default();
        let read = calls::read(&held).filter(|_| by_itself);
        match &read {
            Some((_, calls)) => self.push(&self.head.calls(calls)),
            None => self.text(&held),
        }
        self.push(&self.head.end(why(by_itself, read.is_some())));
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
