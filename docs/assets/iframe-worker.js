/* Search from a folder: browsers start no worker at file://, so a hidden frame does its work.
 *
 * Only what the theme's search asks of a worker is here: messages in both directions, and
 * importScripts, which it awaits. MkDocs' plugin "offline" would take such a script from elsewhere.
 */
(() => {
  "use strict";
  if (location.protocol !== "file:") return;

  const prepare = (scope, worker) => {
    // Within the frame postMessage would reach the frame itself.
    scope.postMessage = (data) => {
      setTimeout(() => worker.dispatchEvent(new MessageEvent("message", { data })));
    };
    scope.importScripts = async (...addresses) => {
      for (const address of addresses) await load(scope, address);
    };
  };

  const load = (scope, address) =>
    new Promise((resolve, reject) => {
      const script = scope.document.createElement("script");
      script.src = address;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${address} cannot be loaded`));
      scope.document.head.append(script);
    });

  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html>";
      this.ready = new Promise((resolve) => (this.frame.onload = resolve)).then(async () => {
        const scope = this.frame.contentWindow;
        prepare(scope, this);
        await load(scope, new URL(address, document.baseURI));
        return scope;
      });
      this.ready.catch((error) => this.dispatchEvent(new ErrorEvent("error", { error })));
      document.documentElement.append(this.frame);
    }

    postMessage(data) {
      this.ready.then((scope) => scope.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
})();
