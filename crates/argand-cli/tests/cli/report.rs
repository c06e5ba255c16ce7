//! The page of `argand reproduce`, checked in a real browser. Screenshots stay in `target/tmp/report`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A way of viewing the page.
#[derive(Clone, Copy)]
pub struct View {
    pub name: &'static str,
    pub width: u32,
    pub dark: bool,
}

pub const DESKTOP: View = View { name: "desktop", width: 1200, dark: false };
pub const PHONE: View = View { name: "phone", width: 390, dark: false };
pub const PHONE_AT_NIGHT: View = View { name: "phone-dark", width: 390, dark: true };

/// A file name that would be markup if not escaped.
const TABLE: &str = "<i>mine&co";

#[test]
fn the_report_looks_right() {
    let Some(browser) = Browser::find(LOOK) else {
        eprintln!("NOT RUN: the report was not looked at, for want of a browser: `apt-get install chromium`");
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let items = reproduce(&folder);
    for view in [DESKTOP, PHONE, PHONE_AT_NIGHT] {
        let seen = browser.look(&folder, "report.html", view);
        assert_eq!(faults(&seen, view), [""; 0], "{}", view.name);
        check_contents(&seen, &items, view);
        let picture = browser.photograph(&folder, "report.html", view, &seen);
        assert_eq!(picture_faults(&picture, &folder, view), [""; 0], "{}", view.name);
    }
    // A check that sees nothing would find no fault here, either.
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    let broken = page.replace("prefers-color-scheme: dark", "prefers-color-scheme: neither").replace(
        "</main>",
        "</main><p style=\"width: 700px\">wide</p><p id=\"moments\" style=\"color: #eee\">pale</p><img src=\"https://example.org/x.png\">\
         <a href=\"#nowhere\">lost</a><style>#norm-error svg, #norm-error h2 { display: none } .chart text { font-size: 40px } svg { filter: grayscale(1) }</style>",
    );
    fs::write(folder.join("broken.html"), broken).unwrap();
    let view = View { name: "broken", ..PHONE_AT_NIGHT };
    let seen = browser.look(&folder, "broken.html", view);
    let picture = browser.photograph(&folder, "broken.html", view, &seen);
    let found = [faults(&seen, view), picture_faults(&picture, &folder, view)].concat().join("\n");
    for fault in [
        "the page is wider than the screen",
        "invisible: H2",
        "invisible: svg",
        "texts overlap",
        "two elements called moments",
        "a link to nowhere",
        "an outside resource: https://example.org/x.png",
        "too pale: pale",
        "the background is rgb(255, 255, 255)",
        "0 of the picture are background",
        "no line in [213, 94, 0]",
    ] {
        assert!(found.contains(fault), "{fault:?} was not noticed: {found}");
    }
    for broken in [folder.join("broken.html"), picture] {
        fs::remove_file(broken).unwrap();
    }
}

/// Makes the page from all items, on a small table, and returns their names.
fn reproduce(folder: &Path) -> Vec<String> {
    let program = || Command::new(env!("CARGO_BIN_EXE_argand"));
    let line = |row: usize| {
        let angle = row as f64;
        format!("{:.4},{:.4},{:.4},{}\n", angle.cos(), (2.0 * angle).sin(), (3.0 * angle).cos(), ["a", "b"][row % 2])
    };
    let table = folder.join(format!("{TABLE}.csv"));
    fs::write(&table, "x,y,z,class\n".to_owned() + &(0..120).map(line).collect::<String>()).unwrap();
    for (names, seeds) in
        [("moments norm-error variances error-probability variance-ratio", 40), ("gp time ratio online", 1)]
    {
        let options =
            format!("--quick --seeds {seeds} --features 64,128 --scaling non-negative --labels class --quiet");
        let mut command = program();
        command.arg("reproduce").args(names.split(' ')).args(options.split(' ')).arg("--table").arg(&table);
        let output = command.arg("--out").arg(folder).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let list = program().args(["reproduce", "list"]).output().unwrap().stdout;
    let list = String::from_utf8(list).unwrap();
    list.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// Facts about the page that are not faults in themselves.
fn check_contents(seen: &Value, items: &[String], view: View) {
    let sections = seen["sections"].as_array().unwrap();
    let names: Vec<&str> = sections.iter().map(|section| section["id"].as_str().unwrap()).collect();
    assert_eq!(names, items, "{}", view.name);
    for section in sections {
        assert!(!section["heading"].as_str().unwrap().is_empty(), "{section}");
        let verdicts = section["verdicts"].as_array().unwrap();
        let words = ["agrees", "differs", "open"];
        assert!(verdicts.iter().all(|verdict| words.contains(&verdict.as_str().unwrap())), "{section}");
        assert!(!verdicts.is_empty(), "{section}");
    }
    let all = sections.iter().flat_map(|section| section["verdicts"].as_array().unwrap()).count();
    let tally: u64 =
        seen["tally"].as_array().unwrap().iter().map(|count| count.as_str().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(tally, all as u64, "{}", view.name);
    assert!(seen["text"].as_str().unwrap().contains(TABLE), "the name of the table is not there");
    assert_eq!(seen["markup"], 0, "the name of the table became markup");
    let charts = seen["charts"].as_array().unwrap();
    assert!(charts.len() > 12, "{} charts", charts.len());
    for chart in charts {
        // Charts stack on phones and sit side by side on desktops.
        let widths = if view.width < 500 { 300.0..390.0 } else { 400.0..500.0 };
        assert!(widths.contains(&chart["width"].as_f64().unwrap()), "{}: {chart}", view.name);
        assert!(chart["label"].as_str().unwrap().contains(" over "), "{chart}");
    }
}

/// Faults in the pixels of a screenshot, in words.
fn picture_faults(file: &Path, folder: &Path, view: View) -> Vec<String> {
    let mut decoder = png::Decoder::new(std::io::BufReader::new(File::open(file).unwrap()));
    decoder.set_transformations(png::Transformations::ALPHA | png::Transformations::STRIP_16);
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    assert_eq!((info.width, info.color_type), (view.width, png::ColorType::Rgba));
    let (pixels, _) = bytes.as_chunks::<4>();
    let like = |[red, green, blue]: [u8; 3]| {
        let near =
            |pixel: &&[u8; 4]| pixel[0].abs_diff(red).max(pixel[1].abs_diff(green)).max(pixel[2].abs_diff(blue)) <= 3;
        pixels.iter().filter(near).count()
    };
    let mut faults = Vec::new();
    let background = like(if view.dark { [0x14, 0x17, 0x1d] } else { [255; 3] }) as f64 / pixels.len() as f64;
    if !(0.5..0.97).contains(&background) {
        faults.push(format!("{background} of the picture are background"));
    }
    let colours = line_colours(folder);
    assert!(colours.len() >= 6, "{colours:?}");
    // Dark pages lighten greys.
    for colour in colours.into_iter().filter(|colour| !view.dark || colour[0] != colour[1]) {
        if like(colour) < 100 {
            faults.push(format!("no line in {colour:?}"));
        }
    }
    faults
}

/// The colours of lines in all pictures.
fn line_colours(folder: &Path) -> BTreeSet<[u8; 3]> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let pictures = files.filter(|file| file.extension().is_some_and(|ending| ending == "svg"));
    let mut colours = BTreeSet::new();
    for svg in pictures.map(|file| fs::read_to_string(file).unwrap()) {
        for line in svg.lines().filter(|line| line.starts_with("<polyline") && !line.contains("\"#000000\"")) {
            let (_, colour) = line.split_once("stroke=\"#").unwrap();
            let [red, green, blue] = [0, 2, 4].map(|at| u8::from_str_radix(&colour[at..at + 2], 16).unwrap());
            colours.insert([red, green, blue]);
        }
    }
    colours
}

/// Faults of the page, in words.
fn faults(seen: &Value, view: View) -> Vec<String> {
    let mut faults: Vec<String> =
        seen["faults"].as_array().unwrap().iter().map(|fault| fault.as_str().unwrap().to_owned()).collect();
    let background = seen["background"].as_str().unwrap();
    let expected = if view.dark { "rgb(20, 23, 29)" } else { "rgb(255, 255, 255)" };
    if background != expected {
        faults.push(format!("the background is {background}"));
    }
    faults
}

/// Headless Chromium, and a function `look` that says what it sees of the page in a frame.
pub struct Browser {
    program: &'static str,
    look: &'static str,
}

impl Browser {
    pub fn find(look: &'static str) -> Option<Self> {
        let works =
            |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
        ["chromium", "chromium-browser", "google-chrome"].iter().find(works).map(|program| Self { program, look })
    }

    /// Opens the page in a frame as wide as the screen (windows have a minimum width) and returns the findings.
    pub fn look(&self, folder: &Path, page: &str, view: View) -> Value {
        let dom = self.open(folder, page, view, 800, "--dump-dom");
        let found = dom.split_once("<pre id=\"seen\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        assert!(found.is_some(), "{page} was not measured: {dom}");
        let found = found
            .unwrap()
            .0
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&nbsp;", "\u{a0}")
            .replace("&amp;", "&");
        serde_json::from_str(&found).unwrap()
    }

    /// A screenshot of the whole page.
    pub fn photograph(&self, folder: &Path, page: &str, view: View, seen: &Value) -> PathBuf {
        let file = folder.join(format!("{}.png", view.name));
        let height = u32::try_from(seen["height"].as_u64().unwrap()).unwrap();
        self.open(folder, page, view, height, &format!("--screenshot={}", file.display()));
        file
    }

    /// The output of the browser.
    fn open(&self, folder: &Path, page: &str, view: View, height: u32, action: &str) -> String {
        let frame = FRAME.replace("PAGE", page).replace("WIDTH", &view.width.to_string()).replace("LOOK", self.look);
        fs::write(folder.join("frame.html"), frame).unwrap();
        let profile = tempfile::tempdir().unwrap();
        let printed = profile.path().join("printed");
        let mut browser = Command::new(self.program)
            // The test may run as root, in a container, and without network.
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-extensions"])
            .args(["--hide-scrollbars", "--force-color-profile=srgb", "--force-device-scale-factor=1"])
            .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--allow-file-access-from-files"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!view.dark)))
            .arg(format!("--window-size={},{height}", view.width))
            .arg(action)
            .arg(format!("file://{}", folder.join("frame.html").display()))
            .stdin(Stdio::null())
            .stdout(File::create(&printed).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = browser.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > Duration::from_secs(120) {
                browser.kill().unwrap();
                browser.wait().unwrap();
            }
            thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{} {action}: {status}", self.program);
        fs::remove_file(folder.join("frame.html")).unwrap();
        fs::read_to_string(printed).unwrap()
    }
}

/// Frames a page, looks at it, and writes what it sees. Contrast of two colours is as the Web Content Accessibility Guidelines define it.
const FRAME: &str = r#"<!doctype html>
<meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<style>body { margin: 0 } iframe { display: block; border: 0; width: WIDTHpx; height: 800px }</style>
<iframe src="PAGE" allow="clipboard-write"></iframe>
<script>
const frame = document.querySelector('iframe');

function contrast(one, other) {
  const luminance = colour => {
    const parts = colour.match(/[\d.]+/g).slice(0, 3).map(part => part / 255);
    const [red, green, blue] = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

LOOK

addEventListener('load', () => {
  const seen = look();
  frame.style.height = seen.height + 'px';
  const found = document.createElement('pre');
  found.id = 'seen';
  found.textContent = JSON.stringify(seen);
  document.body.append(found);
});
</script>
"#;

/// Measures the page as rendered.
const LOOK: &str = r"function look() {
  const page = frame.contentDocument, view = frame.contentWindow, faults = [];
  const all = selector => [...page.querySelectorAll(selector)];
  const background = view.getComputedStyle(page.documentElement).backgroundColor;
  const words = element => element.textContent.trim().slice(0, 40);

  if (page.documentElement.scrollWidth > view.innerWidth)
    faults.push(`the page is wider than the screen: ${page.documentElement.scrollWidth}`);
  for (const element of all('h1, h2, p, li, figure, figcaption, figure svg, figure text, .badge')) {
    const { width, height, left, right } = element.getBoundingClientRect();
    if (!(width > 0 && height > 0 && element.checkVisibility({ opacityProperty: true, visibilityProperty: true })))
      faults.push(`invisible: ${element.tagName} ${words(element)}`);
    if ((left < 0 || right > view.innerWidth) && !element.closest('.wide'))
      faults.push(`off the screen: ${element.tagName} ${words(element)}`);
    const style = view.getComputedStyle(element);
    if (contrast(element.tagName == 'text' ? style.fill : style.color, background) < 4.5) faults.push(`too pale: ${words(element)}`);
  }
  for (const svg of all('figure svg')) {
    const outer = svg.getBoundingClientRect(), scale = outer.width / svg.viewBox.baseVal.width;
    const texts = [...svg.querySelectorAll('text')].map(text => ({
      words: words(text), box: text.getBoundingClientRect(), size: scale * parseFloat(view.getComputedStyle(text).fontSize),
    }));
    texts.forEach(({ words, box, size }, index) => {
      if (box.left < outer.left - 1 || box.right > outer.right + 1 || box.top < outer.top - 1 || box.bottom > outer.bottom + 1)
        faults.push(`text is cut off: ${words}`);
      if (size < 9.5) faults.push(`tiny text: ${words}`);
      for (const other of texts.slice(index + 1)) {
        const across = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
        const down = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
        if (across > 1 && down > 1) faults.push(`texts overlap: ${words}, ${other.words}`);
      }
    });
  }
  const ids = all('[id]').map(element => element.id);
  ids.filter((id, index) => ids.indexOf(id) < index).forEach(id => faults.push(`two elements called ${id}`));
  for (const link of all('[href]').map(element => element.getAttribute('href')))
    if (!link.startsWith('#') || !ids.includes(link.slice(1))) faults.push(`a link to nowhere: ${link}`);
  all('[src]').forEach(element => faults.push(`an outside resource: ${element.src}`));
  all('script, link, object, embed').forEach(element => faults.push(`an outside resource: ${element.tagName}`));
  view.performance.getEntriesByType('resource').forEach(entry => faults.push(`an outside resource: ${entry.name}`));
  if (/url\(|@import/.test(all('style').map(style => style.textContent).join())) faults.push('an outside resource in the style');

  return {
    faults, background, height: page.documentElement.scrollHeight, text: page.body.textContent, markup: all('i').length,
    tally: all('.tally b').map(words),
    sections: all('section').map(section => ({
      id: section.id, heading: words(section.querySelector('h2')),
      verdicts: [...section.querySelectorAll('.verdicts > li')].map(verdict => verdict.className),
    })),
    charts: all('.chart').map(chart => ({
      width: chart.getBoundingClientRect().width, label: chart.getAttribute('aria-label'),
    })),
  };
}";
