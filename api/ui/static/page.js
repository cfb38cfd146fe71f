// Keeps the page current: on each event of the log (or every five seconds) the page is read again and its live part
// replaced. Without script the page is complete, only not live.
"use strict";
(() => {
  const state = document.getElementById("live-state");
  let timer = null;
  let busy = false;
  let took = 100; // milliseconds that the last refresh took: a large fleet is read less often

  async function refresh() {
    timer = null;
    if (busy || document.hidden) return;
    busy = true;
    const begun = performance.now();
    try {
      const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      replace(page);
      document.title = page.title;
      state.textContent = page.getElementById("live-state").textContent;
      state.classList.remove("alarm");
    } catch {
      state.textContent = "The service does not answer; trying again.";
      state.classList.add("alarm");
    } finally {
      busy = false;
      took = performance.now() - begun;
    }
  }

  function replace(page) {
    const old = document.getElementById("live");
    const fresh = page.getElementById("live");
    if (old.innerHTML === fresh.innerHTML) return;
    if (document.getSelection().toString()) return; // somebody is copying text
    const focused = pathTo(document.activeElement, old);
    const scrolled = [...old.querySelectorAll(".scroll, pre")].map((box) => [box.scrollLeft, box.scrollTop]);
    const open = [...old.querySelectorAll("details")].map((box) => box.open);
    old.replaceChildren(...fresh.childNodes);
    old.querySelectorAll("details").forEach((box, index) => (box.open = open[index] ?? false));
    old.querySelectorAll(".scroll, pre").forEach((box, index) => {
      if (scrolled[index]) [box.scrollLeft, box.scrollTop] = scrolled[index];
    });
    if (focused) find(focused, old)?.focus({ preventScroll: true });
  }

  // Focus is kept by what the element is (its link, or its label), since rows come and go.
  function pathTo(element, root) {
    if (!element || !root.contains(element)) return null;
    return { tag: element.tagName, href: element.getAttribute("href"), label: element.getAttribute("aria-labelledby") };
  }

  function find(path, root) {
    return [...root.querySelectorAll(path.tag)].find(
      (element) =>
        element.tabIndex >= 0 &&
        element.getAttribute("href") === path.href &&
        element.getAttribute("aria-labelledby") === path.label,
    );
  }

  function soon() {
    if (timer === null) timer = setTimeout(refresh, Math.max(400, 4 * took));
  }

  const source = new EventSource("/v1/events");
  const kinds = "submitted cancel hold resume priority planned preempted rejected resized swept dependency_ended " +
    "gang_reserved gang_running gang_exited gang_start_failed gang_released host_changed host_inventory";
  for (const kind of kinds.split(" ")) source.addEventListener(kind, soon);
  setInterval(soon, 5000);
  document.addEventListener("visibilitychange", soon);
})();
