//! Server-sent events, as they come in pieces.

#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub name: String,
    pub data: String,
}

#[derive(Default)]
pub struct Events {
    rest: Vec<u8>,
}

impl Events {
    /// The events that a piece completes.
    pub fn read(&mut self, piece: &[u8]) -> Vec<Event> {
        self.rest.extend_from_slice(piece);
        let mut found = vec![];
        while let Some(end) = self.rest.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.rest.drain(..end + 2).collect();
            let text = String::from_utf8_lossy(&block).into_owned();
            let (mut id, mut name, mut data) = (None, String::from("message"), vec![]);
            for line in text.lines() {
                let (field, value) = line.split_once(':').unwrap_or((line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                match field {
                    "id" => id = Some(value.to_owned()),
                    "event" => value.clone_into(&mut name),
                    "data" => data.push(value.to_owned()),
                    _ => {}
                }
            }
            if !data.is_empty() {
                found.push(Event { id, name, data: data.join("\n") });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_put_together_from_pieces() {
        let mut events = Events::default();
        assert!(events.read(b": heartbeat\n\nid: 7\neve").is_empty());
        assert!(events.read("nt: delivery\ndata: {\"ü\":".as_bytes()).is_empty());
        let found = events.read(b"1}\n\ndata: a\ndata: b\n\n");
        let delivery = Event { id: Some("7".into()), name: "delivery".into(), data: "{\"ü\":1}".into() };
        assert_eq!(found, [delivery, Event { id: None, name: "message".into(), data: "a\nb".into() }]);
    }
}
