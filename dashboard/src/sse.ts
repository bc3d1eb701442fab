// Server-sent events out of bytes, however those are cut.

export interface Message {
  id: string | null;
  data: string;
}

export class MessageReader {
  private readonly decoder = new TextDecoder();
  private rest = "";
  private id: string | null = null;
  private data: string[] = [];

  /** The messages that are complete with these bytes. */
  push(bytes: Uint8Array): Message[] {
    const messages: Message[] = [];
    const lines = (this.rest + this.decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (this.data.length > 0) messages.push({ id: this.id, data: this.data.join("\n") });
        this.data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "data") this.data.push(value);
      else if (field === "id") this.id = value;
    }
    return messages;
  }
}
