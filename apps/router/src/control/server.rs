//! What clients of the control socket may ask of a router.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Value, json};

use super::handle::ControlHandle;
use super::{show, traces};
use linerate_appliance::control::capture;
use linerate_appliance::control::server::{Service, say};
use linerate_appliance::nearest::offer;
use linerate_appliance::socket::{Problem, Request};

/// All methods, for those who mistype one.
const METHODS: [&str; 8] = [
    "show", "clear", "reload", "stop", "drain", "trace", "capture", "metrics",
];

impl Service for ControlHandle {
    fn serve(
        &self,
        request: Request,
        stream: &mut UnixStream,
        closing: &AtomicBool,
    ) -> io::Result<bool> {
        let (id, params) = (request.id, request.params);
        match request.method.as_deref().unwrap_or("") {
            "capture" => {
                let taps = self.call(|control| control.taps());
                capture::serve(stream.try_clone()?, id, &params, taps, closing)?;
                return Ok(false);
            }
            "trace" => traces::serve(stream, id, &params, self, closing)?,
            method => say(stream, id, ask(method, params, self))?,
        }
        Ok(true)
    }
}

/// The answer to a request that is one.
fn ask(method: &str, params: Value, handle: &ControlHandle) -> Result<Value, Problem> {
    match method {
        "show" => handle.call(move |control| show::show(control, &params))?,
        "clear" => handle.call(move |control| show::clear(control, &params))?,
        "reload" => handle.reload(),
        "stop" => handle.call(|control| {
            control.stop();
            Ok(json!({ "text": "ending" }))
        })?,
        "drain" => {
            let seconds = params.get("seconds").and_then(Value::as_f64);
            let seconds = seconds
                .filter(|seconds| (0.0..=3600.0).contains(seconds))
                .ok_or_else(|| Problem::new("drain: no such time", "give seconds, 0 to 3600"))?;
            handle.call(move |control| control.drain(Duration::from_secs_f64(seconds)))?
        }
        "metrics" => Ok(json!({ "text": handle.call(|control| control.metrics())? })),
        other => Err(Problem::new(
            format!("there is no method `{other}`"),
            offer(other, METHODS),
        )),
    }
}
