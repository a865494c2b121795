//! A headless Chromium, driven through chromedriver by the WebDriver protocol (W3C). Some of
//! Chrome's own commands emulate a light or dark scheme, or a phone.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Package names in Debian and its derivatives.
const PACKAGES: &str = "install the packages chromium and chromium-driver";
/// The limit of every wait. A wait takes longer only if it hangs.
const PATIENCE: Duration = Duration::from_mins(1);
/// Only one browser runs at a time: two of them on two CPUs would measure each other.
static TURN: Mutex<()> = Mutex::new(());

/// Keys as WebDriver writes them.
pub mod key {
    pub const SHIFT: &str = "\u{e008}";
    pub const LEFT: &str = "\u{e012}";
    pub const TAB: &str = "\u{e004}";
    pub const ENTER: &str = "\u{e007}";
    pub const ESCAPE: &str = "\u{e00c}";
    pub const END: &str = "\u{e010}";
    pub const RIGHT: &str = "\u{e014}";
    pub const DOWN: &str = "\u{e015}";
}

/// A browser with one empty page.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// The directory of the driver and the browser, which leave files behind.
    folder: PathBuf,
    /// The log so far: reading it from the browser removes it there.
    logged: RefCell<Vec<Value>>,
    _turn: MutexGuard<'static, ()>,
}

fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("no {name} in PATH: {PACKAGES}"))
}

/// Returns whether the request succeeded, and the answer. chromedriver writes no blank after a
/// header's colon, and leaves the connection open.
fn answer(from: TcpStream) -> io::Result<(bool, Value)> {
    let (mut from, mut head) = (BufReader::new(from), String::new());
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    };
    let length: usize = head.lines().find_map(header).ok_or(io::ErrorKind::InvalidData)?;
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok((head.contains(" 200 "), serde_json::from_slice(&body)?))
}

fn is_root() -> bool {
    // Chromium's sandbox refuses root.
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

impl Browser {
    /// Starts a browser of 1,280 × 900 pixels. If `watched` is set, it logs every request.
    pub fn start(watched: bool) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (driver, chromium) = (program("chromedriver"), program("chromium"));
        let folder = std::env::temp_dir().join(format!("kube-canary-page-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .env("TMPDIR", &folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}; {PACKAGES}"));
        let mut said = BufReader::new(driver.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let port = said.find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok());
        let port = port.unwrap_or_else(|| panic!("chromedriver does not say its port; {PACKAGES}"));
        let mut browser =
            Self { driver, port, session: String::new(), folder, logged: RefCell::default(), _turn: turn };
        browser.session = browser.new_session(&chromium, watched);
        browser
    }

    fn new_session(&self, chromium: &Path, watched: bool) -> String {
        let mut arguments = vec![
            "--headless=new",
            "--window-size=1280,900",
            "--force-device-scale-factor=1",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--lang=en-US",
            // No name of the browser's own requests is resolved.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ];
        if is_root() {
            arguments.push("--no-sandbox");
        }
        let performance = if watched { "ALL" } else { "OFF" };
        let made = self.ask(
            "POST",
            "/session",
            &json!({"capabilities": {"alwaysMatch": {
                // The driver does not wait for pages to load: their loading is under test.
                "pageLoadStrategy": "none",
                // A shorter limit would end a script that a busy machine delays.
                "timeouts": {"script": PATIENCE.as_millis()},
                "goog:loggingPrefs": {"browser": "ALL", "performance": performance},
                "goog:chromeOptions": {"binary": chromium, "args": arguments},
            }}}),
        );
        made["sessionId"].as_str().unwrap_or_else(|| panic!("no browser: {made}; {PACKAGES}")).into()
    }

    /// Sends one request to the driver, and returns its value.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).expect("chromedriver reads");
        let (ok, mut answer) = answer(stream).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        assert!(ok, "{method} {path}: {answer}");
        answer["value"].take()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}{path}", self.session), body)
    }

    /// Begins to open `address`, without waiting.
    pub fn open(&self, address: &str) {
        self.post("/url", &json!({ "url": address }));
    }

    /// Returns the result of the body of a function, in the page's scope.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// [`Browser::run`] for a text.
    pub fn text(&self, expression: &str) -> String {
        let value = self.run(&format!("return {expression}"));
        value.as_str().unwrap_or_else(|| panic!("{expression}: {value}")).into()
    }

    /// Waits until an expression is true. One that cannot be evaluated yet counts as false.
    pub fn until(&self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        let script = format!("try {{ return Boolean({expression}) }} catch (error) {{ return String(error) }}");
        loop {
            let value = self.run(&script);
            if value == json!(true) {
                return;
            }
            let shows = || self.run("return document.body?.innerText");
            assert!(Instant::now() < end, "never so: {expression} ({value}); the page shows {}", shows());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Presses and releases keys, one after the other, on the element that has the focus.
    pub fn press(&self, keys: &[&str]) {
        let actions: Vec<Value> =
            keys.iter().flat_map(|key| ["keyDown", "keyUp"].map(|what| json!({"type": what, "value": key}))).collect();
        self.post("/actions", &json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}));
    }

    /// Presses a key while Shift is held.
    pub fn press_with_shift(&self, key: &str) {
        let action = |what: &str, key: &str| json!({"type": what, "value": key});
        let actions = [("keyDown", key::SHIFT), ("keyDown", key), ("keyUp", key), ("keyUp", key::SHIFT)]
            .map(|(what, key)| action(what, key));
        self.post("/actions", &json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}));
    }

    /// Clicks at a place of the window, given by an expression `[x, y]`.
    pub fn click(&self, place: &str) {
        let at = self.run(&format!("return ({place}).map(Math.round)"));
        let to = json!({"type": "pointerMove", "duration": 0, "x": at[0], "y": at[1]});
        let button = |what| json!({"type": what, "button": 0});
        let actions = json!([to, button("pointerDown"), button("pointerUp")]);
        self.post("/actions", &json!({"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]}));
    }

    /// Runs one of Chrome's own commands.
    pub fn command(&self, name: &str, parameters: &Value) {
        self.post("/goog/cdp/execute", &json!({"cmd": name, "params": parameters}));
    }

    /// Sets the scheme that the reader prefers: `light` or `dark`.
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.command("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Sets the size of the window in pixels, with `scale` device pixels to one.
    pub fn resize(&self, width: u32, height: u32, scale: f64) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600});
        self.command("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Runs `script` in every page from now on, before the page's own.
    pub fn before_pages(&self, script: &str) {
        self.command("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": script }));
    }

    /// Returns the window as it is shown, as PNG in base64.
    pub fn screenshot(&self) -> String {
        let image = self.ask("GET", &format!("/session/{}/screenshot", self.session), &Value::Null);
        image.as_str().expect("base64").into()
    }

    /// Addresses of all requests, except for the browser's own pages. The browser must be
    /// `watched`.
    pub fn requests(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": "performance"}));
        let entries = entries.as_array().expect("a log").iter();
        let messages = entries
            .map(|entry| -> Value { serde_json::from_str(entry["message"].as_str().expect("a text")).expect("JSON") });
        let addresses = messages
            .filter(|message| message["message"]["method"] == "Network.requestWillBeSent")
            .map(|message| message["message"]["params"]["request"]["url"].as_str().expect("an address").to_owned());
        addresses.filter(|address| !address.starts_with("data:")).collect()
    }

    /// Returns the entries of the browser's console so far.
    pub fn console(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": "browser"}));
        let mut logged = self.logged.borrow_mut();
        logged.extend(entries.as_array().expect("a log").iter().cloned());
        logged.iter().map(ToString::to_string).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.ask("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        self.end_driver();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Browser {
    /// Ends the driver in order, so that it ends its browser too.
    fn end_driver(&mut self) {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = write!(stream, "GET /shutdown HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = stream.read(&mut [0; 1]);
        }
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if matches!(self.driver.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
