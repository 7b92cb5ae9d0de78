//! Users who sign up, confirm their email by the code in the mail, sign in to the app, go on and leave.
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Area, Soak, ledger::Person, world::OWNER};
use crate::{
    one_node::Dice,
    support::people::{PASSWORD, text},
};

const AREA: Area = Area::People;

impl Soak {
    /// Keeps the owner signed in: an access token is short-lived, and creating agents asks for a recent sign-in.
    pub fn renew(&self, dice: &mut Dice) {
        let mut signed_in = Instant::now();
        while !self.is_over() {
            Self::pause(dice, 400);
            if signed_in.elapsed() > Duration::from_mins(2) {
                let body = login(OWNER);
                let Some(reply) = self.ask(AREA, dice, "POST /auth/login", "", &body, &[200]) else { continue };
                *self.access.write().unwrap() = text(&reply.json()["accessToken"]);
                signed_in = Instant::now();
            }
        }
    }

    pub fn sign_up(&self, dice: &mut Dice) {
        let mut waiting: Vec<String> = vec![];
        while !self.is_over() {
            if waiting.len() < 3 {
                waiting.extend(self.register(dice));
            }
            for email in std::mem::take(&mut waiting) {
                match self.inbox.lock().unwrap().code(&email) {
                    Some(code) => _ = self.come_in(dice, &email, &code),
                    None => waiting.push(email),
                }
            }
            Self::pause(dice, 600);
        }
    }

    fn register(&self, dice: &mut Dice) -> Option<String> {
        let email = format!("user-{}@example.com", self.number());
        let body = json!({ "email": email, "password": PASSWORD, "name": "Zoe" });
        self.ask(AREA, dice, "POST /auth/register", &Self::key(&self.public), &body, &[200])?;
        self.note(|ledger| ledger.signed_up.insert(email.clone()));
        Some(email)
    }

    /// Confirms the email, signs in twice, and ends one of the sessions.
    fn come_in(&self, dice: &mut Dice, email: &str, code: &str) -> Option<()> {
        let key = Self::key(&self.public);
        let body = json!({ "email": email, "code": code });
        self.ask(AREA, dice, "POST /auth/verify-email", &key, &body, &[200])?;
        let place = self.note(|ledger| {
            let email = email.to_owned();
            ledger.people.push(Person { email, id: String::new(), sign_ins: 0, perhaps: 0 });
            ledger.people.len() - 1
        });
        let mut access = String::new();
        for _ in 0..2 {
            let reply = self.ask(AREA, dice, "POST /auth/login", &key, &login(email), &[200])?;
            let said = reply.json();
            self.note(|ledger| {
                let person = &mut ledger.people[place];
                person.id = text(&said["user"]["id"]);
                person.sign_ins += 1;
                person.perhaps += reply.unanswered;
            });
            access = text(&said["accessToken"]);
            self.is_me(dice, email, &access)?;
            let body = json!({ "refreshToken": said["refreshToken"] });
            let reply = self.ask(AREA, dice, "POST /auth/refresh", &key, &body, &[200, 401])?;
            match reply.status {
                200 => access = text(&reply.json()["accessToken"]),
                // A token that was used up long ago by a try without an answer counts as stolen, and the session ends.
                _ if reply.unanswered > 0 => {
                    access.clear();
                    continue;
                }
                _ => {
                    let said = String::from_utf8_lossy(&reply.body);
                    self.wrong(format!("a fresh refresh token is refused: {said}"));
                }
            }
            self.is_me(dice, email, &access)?;
        }
        if dice.roll(2) == 0 && !access.is_empty() {
            let more = format!("{key}\r\nAuthorization: Bearer {access}");
            let reply = self.ask(AREA, dice, "POST /auth/logout", &more, &Value::Null, &[204, 401])?;
            if reply.status == 401 && reply.unanswered == 0 {
                self.wrong("a session cannot be ended".to_owned());
            }
            self.everywhere(AREA, "an ended session", "GET /auth/me", &more, b"", 401);
            self.note(|ledger| ledger.ended.push(access));
        }
        Some(())
    }

    fn is_me(&self, dice: &mut Dice, email: &str, access: &str) -> Option<()> {
        let more = format!("{}\r\nAuthorization: Bearer {access}", Self::key(&self.public));
        let me = self.ask(AREA, dice, "GET /auth/me", &more, &Value::Null, &[200])?.json();
        if me["email"] != email {
            self.wrong(format!("{email} is taken for {me}"));
        }
        Some(())
    }
}

pub fn login(email: &str) -> Value {
    json!({ "email": email, "password": PASSWORD, "options": { "tokenDelivery": "body" } })
}
