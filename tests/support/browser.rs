//! Somebody in front of a browser, as far as our pages go: links, forms, redirects, cookies.
use std::collections::BTreeMap;

use super::Server;

pub struct Browser<'a> {
    server: &'a Server,
    base: String,
    cookies: BTreeMap<String, String>,
}

/// What is on the screen, or where the browser left for.
pub enum Seen {
    Page(String),
    Elsewhere(String),
}

impl<'a> Browser<'a> {
    pub fn new(server: &'a Server) -> Self {
        Self { server, base: format!("http://localhost:{}", server.address.port()), cookies: BTreeMap::new() }
    }

    fn send(&mut self, method: &str, path: &str, body: &str) -> Seen {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = if cookies.is_empty() { String::new() } else { format!("Cookie: {}\r\n", cookies.join("; ")) };
        let (base, length) = (&self.base, body.len());
        let kind = match method {
            "POST" => format!("Origin: {base}\r\nContent-Type: application/x-www-form-urlencoded\r\n"),
            _ => String::new(),
        };
        let (status, answer) = self.server.send(
            format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: text/html\r\n\
                 {cookies}{kind}Content-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        );
        let (head, page) = answer.split_once("\r\n\r\n").expect("an answer");
        let mut to = None;
        for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
            match name.to_lowercase().as_str() {
                "set-cookie" => {
                    let (name, value) =
                        value.split(';').next().and_then(|pair| pair.split_once('=')).expect("a cookie");
                    self.cookies.insert(name.to_owned(), value.to_owned());
                    self.cookies.retain(|_, value| !value.is_empty());
                }
                "location" => to = Some(value.to_owned()),
                _ => {}
            }
        }
        match to {
            Some(to) => self.open(&to),
            None => {
                assert!(status < 500, "{status} {page}");
                Seen::Page(page.to_owned())
            }
        }
    }

    /// Follows a link, and every redirect behind it, as long as it is ours.
    pub fn open(&mut self, to: &str) -> Seen {
        let path = to.strip_prefix(&self.base).filter(|path| path.starts_with('/'));
        match path.or_else(|| Some(to).filter(|to| to.starts_with('/'))) {
            Some(path) => self.send("GET", path, ""),
            None => Seen::Elsewhere(to.to_owned()),
        }
    }

    /// Fills in the only form of a page, and presses its button or the one with this value.
    pub fn submit(&mut self, page: &str, typed: &[(&str, &str)], button: Option<(&str, &str)>) -> Seen {
        let action = attribute(page.split("<form").nth(1).expect("a form"), "action").expect("an action");
        let inputs = page.split("<input").skip(1);
        let hidden = inputs.filter(|input| attribute(input, "type").as_deref() == Some("hidden"));
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        for input in hidden {
            body.append_pair(
                &attribute(input, "name").expect("a name"),
                &attribute(input, "value").expect("a value"),
            );
        }
        body.extend_pairs(typed).extend_pairs(button);
        self.send("POST", &action, &body.finish())
    }

    /// Signs in and says yes wherever that is asked on the way.
    pub fn go_through(&mut self, link: &str, email: &str, password: &str) -> String {
        self.try_through(link, email, password).unwrap_or_else(|page| panic!("nobody knows what to do with {page}"))
    }

    /// As [`go_through`](Self::go_through), or the page where it does not go on.
    pub fn try_through(&mut self, link: &str, email: &str, password: &str) -> Result<String, String> {
        let mut seen = self.open(link);
        for _ in 0..4 {
            seen = match seen {
                Seen::Elsewhere(to) => return Ok(to),
                Seen::Page(page) if page.contains("action=\"/sign-in\"") => {
                    self.submit(&page, &[("email", email), ("password", password)], None)
                }
                Seen::Page(page) if page.contains("action=\"/consent\"") => {
                    self.submit(&page, &[], Some(("decision", "allow")))
                }
                Seen::Page(page) => return Err(page),
            };
        }
        Err("it goes round in circles".into())
    }

    /// Lets a device in.
    pub fn approve(&mut self, link: &str, user_code: &str, email: &str, password: &str) {
        let mut seen = self.open(link);
        if let Seen::Page(page) = &seen
            && page.contains("action=\"/sign-in\"")
        {
            seen = self.submit(&page.clone(), &[("email", email), ("password", password)], None);
        }
        let Seen::Page(form) = seen else { panic!("the page for the code") };
        assert!(form.contains(user_code), "{form}");
        let Seen::Page(page) = self.submit(&form, &[("user_code", user_code)], None) else { panic!("what asks") };
        let Seen::Page(done) = self.submit(&page, &[], Some(("decision", "allow"))) else { panic!("an answer") };
        assert!(done.contains("<h1>Device connected</h1>"), "{done}");
    }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let tag = tag.split('>').next()?;
    let start = format!("{name}=\"");
    let value = tag.split(&start).nth(1)?.split('"').next()?;
    let marks = [("&quot;", "\""), ("&#x27;", "'"), ("&#x2f;", "/"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    Some(marks.iter().fold(value.to_owned(), |text, (mark, plain)| text.replace(mark, plain)))
}
