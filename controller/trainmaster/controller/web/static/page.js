// Writes times as the clock of the reader shows them, and brings the page up to date while somebody looks at it.
"use strict";

const PERIOD = 10000;

function localize(root) {
  for (const each of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(each.dateTime);
    if (!Number.isNaN(moment.getTime())) {
      each.title = each.dateTime;
      each.textContent = moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
    }
  }
}

async function refresh() {
  const shown = document.getElementById("content");
  const notice = document.getElementById("notice");
  // Who is choosing something, or reads by keyboard, is not disturbed.
  const used = shown.contains(document.activeElement) && document.activeElement !== shown;
  if (document.visibilityState !== "visible" || used) {
    return;
  }
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
    if (!answer.ok) {
      throw new Error(String(answer.status));
    }
    const read = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("content");
    if (read) {
      localize(read);
      shown.replaceChildren(...read.childNodes);
    }
    notice.textContent = "";
  } catch (problem) {
    notice.textContent = "not up to date: the manager does not answer, or the session has ended; reload the page";
  }
}

localize(document);
if (document.querySelector("main[data-refreshed]")) {
  setInterval(refresh, PERIOD);
}
