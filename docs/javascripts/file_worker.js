/* Search in pages that were opened as files.
 *
 * Browsers start no Worker for a page of file://.  There, this class takes its place: the worker's script runs in
 * a hidden frame of the page, and messages between both are events.  On a server nothing is changed.
 */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      const load = (place) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          script.src = place;
          script.onload = done;
          script.onerror = () => failed(new Error(`cannot load ${place}`));
          inside.document.body.appendChild(script);
        });
      inside.postMessage = (data) => this.say(new MessageEvent("message", { data }));
      inside.importScripts = (...places) =>
        places.reduce((before, place) => before.then(() => load(place)), Promise.resolve());
      this.loaded = load(url);
    }

    say(event) {
      this.dispatchEvent(event);
      const listener = this[`on${event.type}`];
      if (listener) listener.call(this, event);
    }

    postMessage(data) {
      this.loaded.then(
        () => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })),
        (error) => this.say(new ErrorEvent("error", { message: error.message })),
      );
    }

    terminate() {
      this.frame.remove();
    }
  };
}
