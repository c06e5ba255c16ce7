//! The page of `argand plan --report`, used in a real browser. Screenshots stay in `target/tmp/plan`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::report::{Browser, DESKTOP, PHONE, PHONE_AT_NIGHT};
use crate::support::*;

/// A column that would be markup if not escaped.
const COLUMN: &str = "<img/src=x/onerror=alert(1)>";

/// A table with such a column.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    let line = |row: usize| {
        let angle = row as f64;
        format!("{:.4},{:.4},{:.4},{:.4}\n", angle.sin().abs(), (2.0 * angle).sin().abs(), angle.cos().abs(), 1.0)
    };
    workspace.write("t.csv", format!("{COLUMN},y,z,w\n") + &(0..200).map(line).collect::<String>());
    workspace
}

const PLAN: &str =
    "plan t.csv --degree 3 --coef0 0.5 --target-error 0.1 --method ctr-product-srht,product-srht,tensor-sketch,srf";

#[test]
fn a_plan_is_a_page_too() {
    let workspace = workspace();
    let shown = workspace.succeed(&format!("{PLAN} --drop w --report plan.html"));
    let page = String::from_utf8(workspace.read("plan.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert_eq!(page.matches("<details").count(), 3);
    // Every method has a line through several numbers of features, over time and over features.
    assert_eq!(page.matches("<polyline").count(), 6);
    assert!(!page.contains(COLUMN) && !page.contains("<img"));
    let command = shown.stdout.lines().find_map(|line| line.trim().strip_prefix("argand transform")).unwrap();
    assert!(page.contains(command), "{command}");
    // The same without a page: it changes nothing of the plan's answer.
    let plain = workspace.succeed(&format!("{PLAN} --drop w"));
    assert_eq!(plain.stdout.lines().next(), shown.stdout.lines().next());
    // It is not written over an input, nor over the spec.
    for clash in ["--report t.csv", "--report s.json --save-spec s.json"] {
        workspace.refuse(&format!("{PLAN} {clash}"), &["--report"]);
    }
}

#[test]
fn the_page_of_a_plan_can_be_used() {
    let Some(browser) = Browser::find(LOOK) else {
        eprintln!("NOT RUN: the page of a plan was not used, for want of a browser: `apt-get install chromium`");
        return;
    };
    let (workspace, folder) = (workspace(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("plan"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    workspace.succeed(&format!("{PLAN} --columns {COLUMN},y,z --report plan.html"));
    let page = String::from_utf8(workspace.read("plan.html")).unwrap();
    fs::write(folder.join("plan.html"), &page).unwrap();
    for view in [DESKTOP, PHONE, PHONE_AT_NIGHT] {
        let seen = browser.look(&folder, "plan.html", view);
        browser.photograph(&folder, "plan.html", view, &seen);
        assert_eq!(seen["faults"], Value::Array(Vec::new()), "{}", view.name);
        let background = if view.dark { "rgb(20, 23, 29)" } else { "rgb(255, 255, 255)" };
        assert_eq!(seen["background"], background, "{}", view.name);
        assert_eq!(seen["first"].as_array().unwrap().len(), 1, "one method is recommended: {seen}");
        assert_eq!(seen["dimmed"], 2, "pointing at one of three methods leaves two behind");
        assert!(seen["tip"].as_str().unwrap().starts_with("tensor-sketch"), "{seen}");
        assert_eq!(
            seen["picked"],
            serde_json::json!(["tensor-sketch"]),
            "clicking at its line opens it, and closes the other"
        );
        assert_eq!(seen["button"], "Copied");
        assert!(seen["copied"].as_str().unwrap().contains("--method tensor-sketch"), "{seen}");
        assert!(seen["copied"].as_str().unwrap().contains(COLUMN), "{seen}");
    }
    // A check that sees nothing would find no fault here, either.
    let broken = page
        .replace("</body>", "<p style=\"width: 900px\">wide</p><img src=\"https://example.org/x.png\"><p style=\"color: #eee\">pale</p></body>")
        .replace("addEventListener('click'", "addEventListener('never'");
    fs::write(folder.join("broken.html"), broken).unwrap();
    let seen = browser.look(&folder, "broken.html", PHONE);
    fs::remove_file(folder.join("broken.html")).unwrap();
    let faults = seen["faults"].to_string();
    for fault in ["wider than the screen", "an outside resource", "too pale: pale"] {
        assert!(faults.contains(fault), "{fault} was not noticed: {faults}");
    }
    assert_ne!(seen["picked"], serde_json::json!(["tensor-sketch"]));
}

/// Points, clicks and copies in the page, and says what happened.
const LOOK: &str = r#"function look() {
  const page = frame.contentDocument, view = frame.contentWindow, faults = [];
  const all = selector => [...page.querySelectorAll(selector)], words = element => element.textContent.trim().slice(0, 40);
  const background = view.getComputedStyle(page.documentElement).backgroundColor;
  if (page.documentElement.scrollWidth > view.innerWidth)
    faults.push(`the page is wider than the screen: ${page.documentElement.scrollWidth}`);
  for (const element of all('h1, h2, p, summary, svg text')) {
    const style = view.getComputedStyle(element), { left, right, width } = element.getBoundingClientRect();
    if (!width && element.textContent) faults.push(`invisible: ${words(element)}`);
    if (left < 0 || right > view.innerWidth) faults.push(`off the screen: ${words(element)}`);
    if (contrast(element.tagName == 'text' ? style.fill : style.color, background) < 4.5) faults.push(`too pale: ${words(element)}`);
  }
  for (const svg of all('svg')) {
    const outer = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')].map(text => [words(text), text.getBoundingClientRect()]);
    texts.forEach(([name, box], index) => {
      if (box.left < outer.left - 1 || box.right > outer.right + 1 || box.bottom > outer.bottom + 1) faults.push(`cut: ${name}`);
      for (const [other, place] of texts.slice(index + 1))
        if (Math.min(box.right, place.right) - Math.max(box.left, place.left) > 1 && Math.min(box.bottom, place.bottom) - Math.max(box.top, place.top) > 1)
          faults.push(`texts overlap: ${name}, ${other}`);
    });
  }
  all('[src]').forEach(element => faults.push(`an outside resource: ${element.src}`));
  view.performance.getEntriesByType('resource').forEach(entry => faults.push(`an outside resource: ${entry.name}`));

  const open = () => all('details[open]').map(element => element.dataset.series), first = open();
  const line = page.querySelector('g[data-series="tensor-sketch"] polyline');
  line.dispatchEvent(new view.PointerEvent('pointerover', { bubbles: true }));
  const dimmed = new Set(all('g.dim').map(element => element.dataset.series)).size, tip = words(page.querySelector('.tip'));
  line.dispatchEvent(new view.MouseEvent('click', { bubbles: true }));
  const picked = open(), chosen = page.querySelector('details[data-series="tensor-sketch"]');
  let copied = '';
  const clipboard = { writeText: text => { copied = text; return { then: done => done() }; } };
  Object.defineProperty(view.navigator, 'clipboard', { value: clipboard, configurable: true });
  const button = chosen.querySelector('button');
  button.click();
  page.querySelector('.argand-plan').dispatchEvent(new view.PointerEvent('pointerleave'));
  return { faults, background, first, dimmed, tip, picked, copied, button: button.textContent, height: page.documentElement.scrollHeight };
}"#;
